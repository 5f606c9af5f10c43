package lcb

import (
	"context"
	"encoding/json"
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

// problemLine is a line of a file in the order of the real ones.
type problemLine struct {
	Title    string `json:"question_title"`
	Content  string `json:"question_content"`
	Platform string `json:"platform"`
	ID       string `json:"question_id"`
	Contest  string `json:"contest_id"`
	Date     string `json:"contest_date"`
	Starter  string `json:"starter_code"`
	Level    string `json:"difficulty"`
	Public   string `json:"public_test_cases"`
	Private  string `json:"private_test_cases"`
	Metadata string `json:"metadata"`
}

const (
	onePublic = `[{"input": "1\n", "output": "1\n", "testtype": "stdin"}]`
	oneCall   = `[{"input": "[1]\n2", "output": "3", "testtype": "functional"}]`
)

func good(id, date string) problemLine {
	stored := squash([]byte(strings.ReplaceAll(onePublic, "1", "2")))
	return problemLine{"Title", "Add.", "atcoder", id, "c", date, "", "easy", onePublic, stored, "{}"}
}

// release writes the six files.
func release(t *testing.T, files ...[]problemLine) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range Files() {
		var b strings.Builder
		if i < len(files) {
			for _, l := range files[i] {
				if err := json.NewEncoder(&b).Encode(l); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// show prints what a set yields, one line a row.
func show(t *testing.T, dir string, o EvalOptions) (out []string, last error) {
	t.Helper()
	set, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range set {
		if row, ok := errors.AsType[*dataset.RowError](err); ok {
			if row.ID != p.ID {
				t.Errorf("%q and %v, want the same id", p.ID, err)
			}
			out = append(out, fmt.Sprintf("%s %s", strings.TrimPrefix(row.ID, "livecodebench/"), row.Reason))
			continue
		}
		if err != nil {
			return out, err
		}
		if p.FnName == "" && len(p.Tests) != p.HiddenTests || p.FnName != "" && (p.Tests != nil || p.Samples != nil) {
			t.Errorf("%+v: tests, their number and the function do not agree", p)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d %d %s", strings.TrimPrefix(p.ID, "livecodebench/"), p.Index, p.HiddenTests, p.FnName)))
	}
	return out, nil
}

func TestOpen_problems(t *testing.T) {
	t.Parallel()
	with := func(id string, change func(*problemLine)) problemLine {
		l := good(id, "2024-05-01T00:00:00")
		change(&l)
		return l
	}
	dir := release(t, []problemLine{
		good("abc1_a", "2023-05-07T00:00:00"),
		with("named", func(l *problemLine) {
			l.Public, l.Private, l.Metadata, l.Starter = oneCall, squash([]byte(oneCall)), `{"func_name": "add"}`, "class S:"
		}),
		with("by kind", func(l *problemLine) { l.Private = oneCall }),
		with("by starter code", func(l *problemLine) { l.Starter = "def f():" }),
		with("by metadata", func(l *problemLine) { l.Metadata = `{"func_name": "g"}` }),
	}, []problemLine{
		with("damaged", func(l *problemLine) { l.Private = l.Private[:20] }),
		with("public damaged", func(l *problemLine) { l.Public = "[" }),
		with("pickled list", func(l *problemLine) { l.Private = hostile["a list"] }),
		with("no tests", func(l *problemLine) { l.Public, l.Private = "[]", "" }),
		with("no statement", func(l *problemLine) { l.Content = " " }),
		with("bad metadata", func(l *problemLine) { l.Metadata = "[]" }),
		good("abc1_a", "2024-05-01"),
		with("pickled", func(l *problemLine) { l.Private = pickles[4] }),
	}, []problemLine{
		with("two", func(l *problemLine) { l.Private = squash([]byte(onePublic)) }),
	})
	want := []string{
		"abc1_a 0 2", "named 1 2 add", "by kind 2 2 ?", "by starter code 3 2 ?", "by metadata 4 2 g",
		"damaged bad_tests", "public damaged bad_tests", "pickled list bad_tests", "no tests no_tests", "no statement bad_statement",
		"bad metadata bad_tests", "abc1_a duplicate_platform", "pickled 5 3 ?", "two 6 2",
	}
	for range 2 {
		got, err := show(t, dir, EvalOptions{})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	got, err := show(t, dir, EvalOptions{Release: 1, MaxTestBytes: 7})
	if diff := cmp.Diff(append([]string{"abc1_a tests_too_large"}, "named 0 2 add"), got[:2]); diff != "" || err != nil || len(got) != 5 {
		t.Errorf("%v, %d rows (-want +got):\n%s", err, len(got), diff)
	}
	set, err := Open(t.Context(), dir, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range set {
		want := dataset.EvalProblem{
			Problem: dataset.Problem{
				ID: "livecodebench/abc1_a", Statement: "Add.", Samples: []judge.Test{{Input: "1\n", Output: "1\n"}}, Title: "Title",
				Source: "atcoder", Platform: "atcoder:abc1_a", Difficulty: "easy", Date: "2023-05-07T00:00:00", HiddenTests: 2,
			},
			Tests: []judge.Test{{Input: "1\n", Output: "1\n"}, {Input: "2\n", Output: "2\n"}},
		}
		if diff := cmp.Diff(want, p); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		break
	}
}

// The days and the release choose problems, whatever else is in the files.
func TestOpen_chooses(t *testing.T) {
	t.Parallel()
	days := []string{"2023-05-07", "2024-07-31T23:59:59", "2024-08-01", "2024-08-01T00:00:00", "2025-01-31", "2025-02-01T10:00:00"}
	var files [][]problemLine
	for i, d := range days {
		files = append(files, []problemLine{good(fmt.Sprint("p", i), d), good(fmt.Sprint("q", i), "")})
	}
	dir := release(t, files...)
	for name, c := range map[string]struct {
		o    EvalOptions
		want string
	}{
		"all":       {EvalOptions{}, "p0 q0 p1 q1 p2 q2 p3 q3 p4 q4 p5 q5"},
		"release 6": {EvalOptions{Release: 6}, "p0 q0 p1 q1 p2 q2 p3 q3 p4 q4 p5 q5"},
		"release 2": {EvalOptions{Release: 2}, "p0 q0 p1 q1"},
		"from":      {EvalOptions{From: "2024-08-01"}, "!q0 !q1 p2 !q2 p3 !q3 p4 !q4 p5 !q5"},
		"until":     {EvalOptions{Until: "2024-08-01"}, "p0 !q0 p1 !q1 !q2 !q3 !q4 !q5"},
		"both":      {EvalOptions{From: "2024-08-01", Until: "2025-02-01", Release: 5}, "!q0 !q1 p2 !q2 p3 !q3 p4 !q4"},
		"none":      {EvalOptions{Until: "2023-01-01", Release: 1}, "!q0"},
	} {
		got, err := show(t, dir, c.o)
		for i, l := range got {
			id, rest, _ := strings.Cut(l, " ")
			if got[i] = id; rest == string(dataset.BadDate) {
				got[i] = "!" + id
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestOpen_refusals(t *testing.T) {
	t.Parallel()
	dir := release(t, []problemLine{good("a", "2024-01-01")})
	for name, o := range map[string]EvalOptions{
		"release 7": {Release: 7}, "release -1": {Release: -1}, "a day": {From: "May"}, "a time": {Until: "2024-01-01T00:00:00"}, "no day": {From: "2024-01-01", Until: "2024-01-01"},
	} {
		if _, err := Open(t.Context(), dir, o); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "test3.jsonl"), []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := show(t, dir, EvalOptions{}); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "test3.jsonl: ") || len(got) != 1 {
		t.Errorf("%q, %v, want one problem, and Corrupt with the file", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	set, err := Open(ctx, dir, EvalOptions{Release: 1})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if last := lastError(set); !errors.Is(last, context.Canceled) {
		t.Errorf("%v, want the context's error", last)
	}
	if err := os.Remove(filepath.Join(dir, "test4.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, EvalOptions{}); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "test4.jsonl") {
		t.Errorf("%v, want NotFound and the file", err)
	}
	if err := os.Remove(filepath.Join(dir, "test.jsonl")); err != nil {
		t.Fatal(err)
	}
	if set, err = Open(t.Context(), release(t), EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	if last := lastError(set); last != nil {
		t.Errorf("empty files: %v", last)
	}
}

// A file that is gone when the set is ranged over is no shorter set.
func TestOpen_fileGoes(t *testing.T) {
	t.Parallel()
	dir := release(t, []problemLine{good("a", "2024-01-01")})
	set, err := Open(t.Context(), dir, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "test2.jsonl")); err != nil {
		t.Fatal(err)
	}
	if last := lastError(set); !fault.Is(last, fault.NotFound) {
		t.Errorf("%v, want NotFound", last)
	}
}

// lastError is the error of the last row of a set.
func lastError(set dataset.EvalSet) (last error) {
	for _, last = range set {
	}
	return last
}

// The tests of problems that are left out are not even held. Not parallel: it counts allocations.
func TestOpen_skipsWithoutHolding(t *testing.T) {
	l := good("a", "2020-01-01")
	l.Private = strings.Repeat("QUJD", 4<<20)
	dir := release(t, []problemLine{l})
	var n int
	used := allocated(func() {
		got, err := show(t, dir, EvalOptions{From: "2024-01-01"})
		if n = len(got); err != nil {
			t.Error(err)
		}
	})
	if n != 0 || used > 4 {
		t.Errorf("%d rows, %.1f MiB allocated for a line of 16 MiB", n, used)
	}
}
