package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

const ownFile = `{"id": "a", "statement": "Add.\n\nExample\nInput\n1 2\n\nOutput\n3\n", "tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "", "output": ""}], "solutions": ["print(3)", "print(1+2)"], "title": "Sum", "source": "own", "url": "https://codeforces.com/contest/1492/problem/B", "difficulty": "EASY", "date": "2026-01-02"}
{"id": "b", "statement": "Print <1> \u00e4.", "tests": [{"input": "x", "output": "1\u0000"}]}
{"tests": [{"output": "2", "input": ""}], "solutions": [], "title": "", "statement": "Print 2.", "id": "c d"}`

func TestReadOwn_readsAllFields(t *testing.T) {
	t.Parallel()
	got, err := dataset.ReadOwn(strings.NewReader(ownFile), "f")
	if err != nil {
		t.Fatal(err)
	}
	want := []dataset.OwnProblem{
		{
			ID: "a", Statement: "Add.\n\nExample\nInput\n1 2\n\nOutput\n3\n", Tests: []judge.Test{{Input: "1 2\n", Output: "3\n"}, {}},
			Solutions: []string{"print(3)", "print(1+2)"}, Title: "Sum", Source: "own", URL: "https://codeforces.com/contest/1492/problem/B",
			Difficulty: "EASY", Date: "2026-01-02",
		},
		{ID: "b", Statement: "Print <1> ä.", Tests: []judge.Test{{Input: "x", Output: "1\x00"}}},
		{ID: "c d", Statement: "Print 2.", Tests: []judge.Test{{Output: "2"}}, Solutions: []string{}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Every field that is missing, blank, of another type, unknown or there twice is refused, with line, field and the form of a line.
func TestReadOwn_refusesEachMistakeByName(t *testing.T) {
	t.Parallel()
	const tests = `"tests": [{"input": "", "output": "1"}]`
	for line, want := range map[string]string{
		`{"statement": "x", ` + tests + `}`:                                             `id`,
		`{"id": "a", ` + tests + `}`:                                                    `statement`,
		`{"id": "a", "statement": "x"}`:                                                 `tests`,
		`{"id": "", "statement": "x", ` + tests + `}`:                                   `"id" cannot be used: null or blank`,
		`{"id": 7, "statement": "x", ` + tests + `}`:                                    `id`,
		`{"id": "a", "statement": " \n", ` + tests + `}`:                                `"statement" cannot be used: null or blank`,
		`{"id": "a", "statement": "\u0000", ` + tests + `}`:                             `"statement" cannot be used: a NUL character`,
		`{"id": "a", "statement": null, ` + tests + `}`:                                 `statement`,
		`{"id": "a", "statement": "x", "tests": []}`:                                    `"tests" is empty`,
		`{"id": "a", "statement": "x", "tests": {}}`:                                    `tests`,
		`{"id": "a", "statement": "x", "tests": ["1"]}`:                                 `tests[0]`,
		`{"id": "a", "statement": "x", "tests": [{"input": ""}]}`:                       `tests[0].output`,
		`{"id": "a", "statement": "x", "tests": [{"input": 1, "output": "1"}]}`:         `tests[0].input`,
		`{"id": "a", "statement": "x", "tests": [{"input": "", "output": "", "k": 1}]}`: `tests[0].k`,
		`{"id": "a", "statement": "x", ` + tests + `, "solutions": "print(1)"}`:         `solutions`,
		`{"id": "a", "statement": "x", ` + tests + `, "solutions": [1]}`:                `solutions[0]`,
		`{"id": "a", "statement": "x", ` + tests + `, "solutions": ["p", " "]}`:         `"solutions[1]" cannot be used: null or blank`,
		`{"id": "a", "statement": "x", ` + tests + `, "solution": "p"}`:                 `solution`,
		`{"id": "a", "Statement": "x", ` + tests + `}`:                                  `Statement`,
		`{"id": "a", "id": "b", "statement": "x", ` + tests + `}`:                       `id`,
		`{"id": "a", "statement": "x", ` + tests + `, "date": 2026}`:                    `date`,
		`{"id": "good", "statement": "x", ` + tests + `}`:                               `"id" "good" is that of line 1 too`,
		`[1]`: `object`,
		`{`:   `not JSON`,
		``:    `blank`,
	} {
		file := `{"id": "good", "statement": "x", ` + tests + "}\n" + line + "\n"
		_, err := dataset.ReadOwn(strings.NewReader(file), "f.jsonl")
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "f.jsonl: line 2: ") || !strings.Contains(err.Error(), want) || !strings.Contains(fault.HintOf(err), `{"id": "sum"`) {
			t.Errorf("%s: %v (hint %q), want line 2 and %q", line, err, fault.HintOf(err), want)
		}
	}
	if _, err := dataset.ReadOwn(strings.NewReader(""), "f"); !fault.Is(err, fault.Invalid) {
		t.Errorf("an empty file: %v", err)
	}
}

// Whatever is wrong with whichever lines, what is no JSON at all included: every bad line is told once, with all of its mistakes, up to a limit of lines
// and one of mistakes in a line, and no good one is.
func TestReadOwn_tellsEveryBadLineUpToALimit(t *testing.T) {
	t.Parallel()
	type part struct{ text, wrong string } // fields of a line, and what must be said of them
	parts := [][]part{
		{{`"statement": "x"`, ""}, {`"statement": 7`, `"statement" is a number`}, {`"title": "t"`, `"statement" is missing`}, {`"statement": " "`, `"statement" cannot be used`}},
		{{`"tests": [{"input": "", "output": ""}]`, ""}, {`"tests": []`, `"tests" is empty`}, {`"source": "s"`, `"tests" is missing`}, {`"tests": [{"input": "", "output": 1}]`, `"tests[0].output" is a number`}},
		{{`"solutions": []`, ""}, {`"solutions": ["p", ""]`, `"solutions[1]" cannot be used`}, {`"solution": []`, `"solution" is not known; known are id, statement,`}},
		{{`"url": ""`, ""}, {`"url": null`, `"url" is null`}, {`"url": "u", "url": "u"`, `"url" is there twice`}},
	}
	broken := []part{{`{`, "it is not JSON"}, {"", "it is blank"}, {"{\"id\": \"\xff\"}", "it is not UTF-8"}, {`[]`, "want an object"}, {`{} {}`, "it is not JSON"}}
	rapid.Check(t, func(rt *rapid.T) {
		var file strings.Builder
		wrong := map[int][]string{}
		lines := rapid.IntRange(1, 60).Draw(rt, "lines")
		for n := 1; n <= lines; n++ {
			if rapid.IntRange(0, 5).Draw(rt, "broken") == 0 {
				p := rapid.SampledFrom(broken).Draw(rt, "line")
				file.WriteString(p.text + "\n")
				wrong[n] = append(wrong[n], p.wrong)
				continue
			}
			id := fmt.Sprint(n)
			if n > 1 && wrong[n-1] == nil && rapid.IntRange(0, 9).Draw(rt, "twice") == 0 {
				id = fmt.Sprint(n - 1)
			}
			text := []string{fmt.Sprintf(`"id": "%s"`, id)}
			for _, choice := range parts {
				p := choice[max(0, rapid.IntRange(-4, len(choice)-1).Draw(rt, "part"))]
				if text = append(text, p.text); p.wrong != "" {
					wrong[n] = append(wrong[n], p.wrong)
				}
			}
			if id != fmt.Sprint(n) {
				wrong[n] = append(wrong[n], fmt.Sprintf(`"id" "%s" is that of line %s too`, id, id))
			}
			file.WriteString("{" + strings.Join(text, ", ") + "}\n")
		}
		problems, err := dataset.ReadOwn(strings.NewReader(file.String()), "f")
		if len(wrong) == 0 {
			if err != nil || len(problems) != lines {
				rt.Fatalf("%d problems of %d good lines: %v", len(problems), lines, err)
			}
			return
		}
		if !fault.Is(err, fault.Invalid) || problems != nil || fault.HintOf(err) == "" {
			rt.Fatalf("%d problems, %v, want Invalid with a hint", len(problems), err)
		}
		told := strings.Split(err.Error(), "\n")
		for i, n := range slices.Sorted(maps.Keys(wrong)) {
			if i == 20 {
				if want := fmt.Sprintf("f: %d of %d lines have mistakes, the first 20 are told", len(wrong), lines); told[i] != want {
					rt.Errorf("the last line is %q, want %q", told[i], want)
				}
				break
			}
			for _, w := range wrong[n] {
				if !strings.HasPrefix(told[i], fmt.Sprintf("f: line %d: ", n)) || !strings.Contains(told[i], w) {
					rt.Errorf("line %d is told as %q, want %q", n, told[i], w)
				}
			}
			if got := strings.Count(told[i], "; ") - strings.Count(told[i], "; known are"); got != len(wrong[n])-1 {
				rt.Errorf("line %d with %q is told as %q", n, wrong[n], told[i])
			}
		}
		if want := min(len(wrong), 21); len(told) != want {
			rt.Errorf("%d lines of text, want %d", len(told), want)
		}
	})
}

// A line with very many mistakes, or with very long names, does not push the others out.
func TestReadOwn_boundsWhatIsToldOfALine(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"id": "a", "statement": "x", "tests": [{"input": "", "output": ""}]`)
	for i := range 30 {
		fmt.Fprintf(&b, `, "%s%d": 1`, strings.Repeat("k", 1<<12), i)
	}
	fmt.Fprintf(&b, "}\n"+`{"id": "%[1]s", "statement": "x", "tests": [{"input": "", "output": ""}]}`+"\n"+`{"id": "%[1]s"}`, strings.Repeat("i", 1<<12))
	_, err := dataset.ReadOwn(strings.NewReader(b.String()), "f")
	if err == nil || !strings.Contains(err.Error(), "; 25 more mistakes\nf: line 3: ") || len(err.Error()) > 2500 {
		t.Errorf("want 5 mistakes and the number of the others:\n%v", err)
	}
}

// A shard of own problems is read back as the same problems, by the code that reads TACO, and its bytes depend on nothing else.
func TestWriteOwn_isReadAsAShard(t *testing.T) {
	t.Parallel()
	problems, err := dataset.ReadOwn(strings.NewReader(ownFile), "f")
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := errors.Join(dataset.WriteOwn(&first, problems), dataset.WriteOwn(&second, problems)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same problems gave other bytes")
	}
	path := filepath.Join(t.TempDir(), "own.parquet")
	if err := os.WriteFile(path, first.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []dataset.EvalProblem
	for p, err := range dataset.OpenShards(t.Context(), []string{path}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if len(got) != len(problems) {
		t.Fatalf("%d problems, want %d", len(got), len(problems))
	}
	for i, p := range problems {
		if got[i].Statement != p.Statement || !cmp.Equal(got[i].Tests, p.Tests) || got[i].URL != p.URL || got[i].Source != p.Source {
			t.Errorf("problem %d is read as %+v", i, got[i])
		}
	}
	if got[0].Title != "Sum" || got[1].Title != "b" || got[0].Platform != "codeforces:1492+B" || got[0].ID != "own/00000" {
		t.Errorf("titles %q, %q, platform %q, id %q", got[0].Title, got[1].Title, got[0].Platform, got[0].ID)
	}
}

func TestOpenOwn_yieldsProblemsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.jsonl", ownFile)
	b := write("b.jsonl", `{"id": "z", "statement": "x", "tests": [{"input": "", "output": "1"}]}`)
	set, err := dataset.OpenOwn(t.Context(), []string{b, a})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // more than once
		var ids []string
		for p, err := range set {
			if err != nil || p.Index != len(ids) || p.HiddenTests != len(p.Tests) || p.FnName != "" {
				t.Errorf("%+v, %v", p, err)
			}
			ids = append(ids, p.ID)
			if p.ID == "a" && (len(p.Samples) != 1 || p.Samples[0].Output != "3\n") {
				t.Errorf("samples of a: %+v", p.Samples)
			}
		}
		if d := cmp.Diff([]string{"z", "a", "b", "c d"}, ids); d != "" {
			t.Error(d)
		}
	}
	if _, err := dataset.OpenOwn(t.Context(), []string{a, a}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `the id "a" is in`) {
		t.Errorf("an id of two files: %v", err)
	}
	if _, err := dataset.OpenOwn(t.Context(), []string{filepath.Join(dir, "none")}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	set, err = dataset.OpenOwn(ctx, []string{a})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, err := range set {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	}
}

// A list of excluded problems is read as strictly: who misspells a key does not train on what should be excluded.
func TestReadExcluded_tellsEveryBadLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"platform": "atcoder:abc387_f"}`:               "",
		`{"url": "https://example.org/a", "text": null}`: "",
		``:                              "",
		`{"platfrom": "x", "url": "u"}`: `field "platfrom" is not known; known are platform, url, text`,
		`{"Text": "x", "url": "u"}`:     `field "Text" is not known`,
		`{"url": 1, "text": ["x"]}`:     `field "url" is a number, want a string; field "text" is a list, want a string`,
		`{"url": "u", "url": "v"}`:      `field "url" is there twice`,
		`{"url": null}`:                 "has neither platform nor url nor text",
		`{}`:                            "has neither",
		`["u"]`:                         "the value is a list, want an object",
		`{`:                             "it is not JSON",
	} {
		file := strings.Repeat(line+"\n"+`{"url": "https://example.org/b"}`+"\n", 2)
		got, err := dataset.ReadExcluded(strings.NewReader(file), "f")
		if want == "" {
			if err != nil || len(got) == 0 {
				t.Errorf("%s: %v, %v", line, got, err)
			}
			continue
		}
		if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || strings.Count(err.Error(), want) != 2 || !strings.Contains(err.Error(), "f: line 1: ") || !strings.Contains(err.Error(), "f: line 3: ") {
			t.Errorf("%s: %v, want lines 1 and 3 with %q", line, err, want)
		}
	}
	if got, err := dataset.ReadExcluded(strings.NewReader(""), "f"); err != nil || len(got) > 0 {
		t.Errorf("an empty list: %v, %v", got, err)
	}
	broken := errors.New("broken pipe")
	if _, err := dataset.ReadExcluded(iotest.ErrReader(broken), "f"); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
