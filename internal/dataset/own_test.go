package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestReadOwn_tellsAllMistakesUpToALimit(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 23 {
		fmt.Fprintf(&b, `{"id": "%d"}`+"\n", i)
	}
	_, err := dataset.ReadOwn(strings.NewReader(b.String()), "f")
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.Contains(err.Error(), "line 20") || !strings.HasSuffix(err.Error(), "3 more mistakes like these") {
		t.Errorf("want 20 lines and the number of the others:\n%v", err)
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
