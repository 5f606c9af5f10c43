package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/testutil"
)

// asSteady makes the test binary be the program, so that a test can kill it.
const asSteady = "STEADY_TEST_AS_STEADY"

func init() {
	if os.Getenv(asSteady) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
}

// additions writes a shard of n problems, of which each eighth lacks a right solution.
func additions(t *testing.T, path string, n int) {
	t.Helper()
	rows := make([]dataset.Row, n)
	for i := range rows {
		question := fmt.Sprintf("Read a number from the first line and print this number plus %d and nothing else.", i)
		solution := fmt.Sprintf(`["print(int(input()) + %d)"]`, i)
		if i%8 == 5 {
			solution = `["print(0)"]`
		}
		tests := fmt.Sprintf(`{"inputs": ["20\n"], "outputs": ["%d\n"]}`, i+20)
		starter := ""
		rows[i] = dataset.Row{Question: &question, Solutions: &solution, InputOutput: &tests, StarterCode: &starter}
	}
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
}

func prepareArgs(dir, out string, more ...string) []string {
	return append([]string{
		"dataset", "prepare", "--shards", filepath.Join(dir, "a.parquet") + "," + filepath.Join(dir, "b.parquet"),
		"--tokenizer", filepath.Join(testutil.Root(), "internal", "demo", "model"), "--out", filepath.Join(dir, out),
	}, more...)
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// Killed in the middle and started again with another number of programs at once, the command goes on and writes the same bytes.
func TestDatasetPrepare_survivesKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	dir := t.TempDir()
	additions(t, filepath.Join(dir, "a.parquet"), 48)
	additions(t, filepath.Join(dir, "b.parquet"), 8) // copies, and a row that is good only here
	var out, errOut bytes.Buffer
	if code := run(prepareArgs(dir, "whole", "--slots=2"), &out, &errOut); code != exitDone {
		t.Fatalf("status %d:\n%s", code, &errOut)
	}
	if want := "56 rows, 42 good: 38 for training, 4 for dev"; !strings.Contains(out.String(), want) {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if want := "warning: 42 of 56 rows are good: 38 for training and 4 for dev, wanted were 2000 and 256"; !strings.Contains(errOut.String(), want) {
		t.Errorf("standard error %q, want %q", errOut.String(), want)
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], prepareArgs(dir, "killed", "--slots=1")...) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), asSteady+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	parts := filepath.Join(dir, "killed.work", "*", "shard-000", "rows-00000000")
	testutil.Eventually(t, time.Minute, "the first part of the first shard", func() bool {
		found, err := filepath.Glob(parts)
		return err == nil && len(found) > 0
	})
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the command ended with %v before it was killed", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "killed")); !os.IsNotExist(err) {
		t.Errorf("half a data set is visible: %v", err)
	}
	first, err := filepath.Glob(parts)
	if err != nil || len(first) != 1 {
		t.Fatalf("%v, %v; want one part", first, err)
	}
	before, err := os.Stat(first[0])
	if err != nil {
		t.Fatal(err)
	}
	hold := filepath.Join(dir, "hold")
	if err := os.Link(first[0], hold); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if code := run(prepareArgs(dir, "killed", "--slots=3"), &out, &errOut); code != exitDone {
		t.Fatalf("status %d:\n%s", code, &errOut)
	}
	if diff := cmp.Diff(filesOf(t, filepath.Join(dir, "whole")), filesOf(t, filepath.Join(dir, "killed"))); diff != "" {
		t.Errorf("other bytes after a kill (-want +got):\n%s", diff)
	}
	if after, err := os.Stat(hold); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the part was written again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "killed.work")); !os.IsNotExist(err) {
		t.Errorf("unfinished work is left over: %v", err)
	}
	// A third time there is nothing to do.
	out.Reset()
	if code := run(prepareArgs(dir, "killed"), &out, &errOut); code != exitDone || !strings.Contains(out.String(), "56 rows, 42 good") {
		t.Errorf("status %d, %s%s", code, &out, &errOut)
	}
	// Other settings are another data set, which does not fit there.
	errOut.Reset()
	if code := run(prepareArgs(dir, "killed", "--seed=1"), &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), "something else") {
		t.Errorf("another seed: status %d, %s", code, &errOut)
	}
	looksAt(t, dir, "killed")
}

// looksAt reads the data set of additions with every command.
func looksAt(t *testing.T, dir, name string) {
	t.Helper()
	set, shards, drawing := filepath.Join(dir, name), filepath.Join(dir, "a.parquet")+","+filepath.Join(dir, "b.parquet"), filepath.Join(dir, "f.svg")
	for _, c := range []struct {
		args []string
		want string // "" is: nothing of this
		code int
	}{
		{[]string{"check", set}, "42 problems, 42 saved tests", exitDone},
		{[]string{"check", set, "--shards", shards}, "42 prompts are the statements of their rows and hold none of their solutions", exitDone},
		{[]string{"check", set, "--shards", drawing}, "no such file", exitUsage},
		{[]string{"decisions", set, "--jsonl"}, `"row":5,"id":"a/00005","keep":false,"reason":"reference_failed","evidence":"solution 0: wrong_answer, 0 of 1 tests"}`, exitDone},
		{[]string{"decisions", set}, "b/00000         duplicate_text       first is a/00000\n", exitDone},
		{[]string{"funnel", set}, "reference_failed        7    49   87.5 %", exitDone},
		{[]string{"funnel", set, "--svg", drawing}, "wrote " + drawing, exitDone},
		{[]string{"funnel", set, "--svg", dir}, "is a directory", exitUsage},
		{[]string{"show", set, "a/00007"}, "0 samples, 1 saved tests\n\nRead a number from the first line and print this number plus 7 and nothing else.\n", exitDone},
		{[]string{"show", set, "a/00007", "--tests"}, "--- input of test 0\n20\n\n--- output of test 0\n27\n", exitDone},
		{[]string{"show", set, "a/00007", "--tests", "--json"}, `"hidden_tests":[{"input":"20\n","output":"27\n"}]}`, exitDone},
		{[]string{"show", set, "b/00000"}, "b/00000: duplicate_text (first is a/00000)\n", exitDone},
		{[]string{"show", set, "c/00000"}, `has no row "c/00000"`, exitUsage},
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"dataset"}, c.args...), &out, &errOut)
		if text := out.String() + errOut.String(); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: status %d, want %d and %q:\n%s", c.args, code, c.code, c.want, text)
		}
	}
	if text, err := os.ReadFile(drawing); err != nil || !bytes.HasPrefix(text, []byte("<svg ")) {
		t.Errorf("the drawing: %.40q, %v", text, err)
	}
	// Without --tests no saved test is printed.
	var out bytes.Buffer
	if code := run([]string{"dataset", "show", set, "a/00007", "--json"}, &out, &out); code != exitDone || strings.Contains(out.String(), "27") {
		t.Errorf("status %d, printed a saved test: %s", code, &out)
	}
}

func TestDatasetPrepare_refusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	additions(t, filepath.Join(dir, "a.parquet"), 3)
	additions(t, filepath.Join(dir, "b.parquet"), 3)
	if err := os.WriteFile(filepath.Join(dir, "c.parquet"), []byte("PAR1 no"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"no shard":     {prepareArgs(dir, "o", "--shards", filepath.Join(dir, "absent")), "absent: no such file", exitUsage},
		"a directory":  {prepareArgs(dir, "o", "--shards", dir), "is a directory", exitUsage},
		"no tokenizer": {prepareArgs(dir, "o", "--tokenizer", filepath.Join(dir, "absent")), "there is no ", exitUsage},
		"no dev":       {prepareArgs(dir, "o", "--dev=0"), "--dev 0: want at least 1", exitUsage},
		"twice":        {prepareArgs(dir, "o", "--shards", filepath.Join(dir, "a.parquet")), "two shards have the name a.parquet", exitUsage},
		"exclude":      {prepareArgs(dir, "o", "--exclude", filepath.Join(dir, "c.parquet")), "--exclude", exitUsage},
		"python":       {prepareArgs(dir, "o", "--python", filepath.Join(dir, "absent")), "absent", exitUsage},
		"no parquet":   {prepareArgs(dir, "o", "--shards", filepath.Join(dir, "c.parquet")), "c is no readable Parquet file", exitMismatch},
		"not empty":    {prepareArgs(dir, "."), "something else", exitUsage},
		"a file":       {prepareArgs(dir, "c.parquet"), "not a directory", exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			if code := run(c.args, &out, &errOut); code != c.code || !strings.Contains(errOut.String(), c.want) {
				t.Errorf("status %d, want %d and %q:\n%s", code, c.code, c.want, &errOut)
			}
			if _, err := os.Stat(filepath.Join(dir, "o")); !os.IsNotExist(err) {
				t.Errorf("a data set is there: %v", err)
			}
		})
	}
}

// lcbDir makes a directory with two problems of LiveCodeBench, of which one is a problem of additions in other words.
func lcbDir(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(dir, "lcb")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	// Compressed JSON of one test.
	private := "eJyLrlbKzCsoLVGyUlAyVNJRUMovLUHmlqQWl5RUFqSCBIpLUjLzlGpjAZinD9Y="
	for name, text := range map[string]string{
		"test.jsonl": `{"question_title": "T", "question_content": "read a number from the first line, and print this number plus 3... and NOTHING else", "platform": "atcoder", ` +
			`"question_id": "abc400_a", "contest_date": "2024-01-02T00:00:00", "starter_code": "", "public_test_cases": "[]", "private_test_cases": "` + private + `"}`,
		"test6.jsonl": `{"question_title": "Two Sum", "question_content": "", "platform": "leetcode", "question_id": "1", "contest_date": "2025-01-02T00:00:00", ` +
			`"starter_code": "class S", "public_test_cases": "[]", "private_test_cases": "[]"}`,
	} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Problems of LiveCodeBench are excluded from its files, or by the list that is made of them: the same data set comes out.
func TestDatasetPrepare_withoutLiveCodeBench(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	dir := t.TempDir()
	additions(t, filepath.Join(dir, "a.parquet"), 5)
	additions(t, filepath.Join(dir, "b.parquet"), 2)
	files := lcbDir(t, dir)
	var list, out, errOut bytes.Buffer
	if code := run([]string{"dataset", "lcb", files}, &list, &errOut); code != exitDone || !strings.Contains(errOut.String(), "warning: test2.jsonl, test3.jsonl") {
		t.Fatalf("status %d, %s", code, &errOut)
	}
	if want := `{"platform":"leetcode:two-sum"}`; strings.Count(list.String(), "\n") != 2 || !strings.Contains(list.String(), want) {
		t.Errorf("the list is %s, want two lines, one of them %s", &list, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "list.jsonl"), list.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"files": {"--lcb", files}, "list": {"--exclude", filepath.Join(dir, "list.jsonl")}} {
		errOut.Reset()
		if code := run(prepareArgs(dir, name, args...), &out, &errOut); code != exitDone || !strings.Contains(errOut.String(), "3 identities of excluded problems were compared, 1 rows have one") {
			t.Errorf("%s: status %d, %s", name, code, &errOut)
		}
	}
	got := filesOf(t, filepath.Join(dir, "files"))
	if diff := cmp.Diff(got, filesOf(t, filepath.Join(dir, "list"))); diff != "" {
		t.Errorf("by files and by list (-files +list):\n%s", diff)
	}
	out.Reset()
	if code := run([]string{"dataset", "show", filepath.Join(dir, "files"), "a/00003"}, &out, &errOut); code != exitDone || !strings.HasPrefix(out.String(), "a/00003: excluded (text:readanumber") {
		t.Errorf("status %d, %s", code, &out)
	}

	out.Reset()
	want := []string{
		"test.jsonl: 1 problems (1 atcoder, 0 leetcode, 0 codeforces; 0 functional) of 2024-01-02 to 2024-01-02, 0 public tests, 1 private tests (0 as JSON, 1 compressed, 0 pickled)",
		"test6.jsonl: 1 problems (0 atcoder, 1 leetcode, 0 codeforces; 1 functional) of 2025-01-02 to 2025-01-02, 0 public tests, 0 private tests (1 as JSON, 0 compressed, 0 pickled)",
		"2 problems; release_v6 has 1055",
	}
	if code := run([]string{"dataset", "lcb", files, "--tests"}, &out, &errOut); code != exitDone || out.String() != strings.Join(want, "\n")+"\n" {
		t.Errorf("status %d, %s, want %q", code, &out, want)
	}
	for _, args := range [][]string{{"dataset", "lcb", dir}, {"dataset", "lcb", filepath.Join(dir, "absent")}, prepareArgs(dir, "o", "--lcb", dir)} {
		errOut.Reset()
		if code := run(args, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), "try: ") {
			t.Errorf("%q: status %d, %s", args, code, &errOut)
		}
	}
}
