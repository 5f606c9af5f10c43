package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

func TestDatasetProblems_formats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	additions(t, filepath.Join(dir, "a.parquet"), 2)
	type row struct {
		Problem string `parquet:"problem"`
		Tests   string `parquet:"tests"`
	}
	three := `[` + strings.Repeat(`{"input": "1", "output": "2"}, `, 2) + `{"input": "1", "output": "2"}]`
	err := parquet.WriteFile(filepath.Join(dir, "d.parquet"), []row{{"Add.", three}, {"Call.", `[{"input": 1, "output": 2, "fn_name": "f"}]`}, {"Bad.", "?"}})
	if err != nil {
		t.Fatal(err)
	}
	files := lcbDir(t, dir)
	for _, name := range []string{"test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"} {
		if err := os.WriteFile(filepath.Join(files, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(stdin, functional, unusable string) string {
		return stdin + " problems of standard input, " + functional + " of functions, " + unusable + " unusable rows\n"
	}
	for name, c := range map[string]struct {
		args     []string
		out, err string
	}{
		"taco": {[]string{"--format", "taco", filepath.Join(dir, "a.parquet")}, "a/00000  stdin       1 tests   \na/00001  stdin       1 tests   \n", sum("2", "0", "0")},
		"deepcoder": {
			[]string{"--format", "deepcoder", filepath.Join(dir, "d.parquet"), "--jsonl"},
			`{"id":"codeforces/train/00000","kind":"stdin","tests":3}` + "\n" + `{"id":"codeforces/train/00001","kind":"functional","tests":1,"fn_name":"f"}` + "\n" +
				`{"id":"codeforces/train/00002","kind":"unusable","tests":0,"reason":"bad_tests","evidence":"neither JSON (byte 0: no value) nor a Python literal (byte 0: no value)"}` + "\n",
			sum("1", "1", "1"),
		},
		"bounds": {
			[]string{"--format", "deepcoder", filepath.Join(dir, "d.parquet"), "--recipe-bounds"},
			"codeforces/train/00000  unusable    0 tests  no_tests 3 tests\ncodeforces/train/00001  functional  1 tests  f \n" +
				"codeforces/train/00002  unusable    0 tests  bad_tests neither JSON (byte 0: no value) nor a Python literal (byte 0: no value)\n",
			sum("0", "1", "2"),
		},
		"lcb": {
			[]string{"--format", "lcb", files},
			"livecodebench/abc400_a  stdin       1 tests   \nlivecodebench/1  unusable    0 tests  bad_statement blank, or with a NUL character\n", sum("1", "0", "1"),
		},
		"lcb, days": {[]string{"--format", "lcb", files, "--until", "2024-06-01", "--release", "6"}, "livecodebench/abc400_a  stdin       1 tests   \n", sum("1", "0", "0")},
	} {
		var out, errOut bytes.Buffer
		if code := run(append([]string{"dataset", "problems"}, c.args...), &out, &errOut); code != exitDone {
			t.Errorf("%s: status %d", name, code)
		}
		if diff := cmp.Diff(c.out, out.String()) + cmp.Diff(c.err, errOut.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, args := range [][]string{
		{filepath.Join(dir, "a.parquet")},
		{"--format", "x", "a"},
		{"--format", "lcb", files, files},
		{"--format", "lcb", dir},
		{"--format", "lcb", files, "--from", "May"},
		{"--format", "taco", filepath.Join(dir, "d.parquet")},
		{"--format", "taco", filepath.Join(dir, "absent")},
		{"--format", "deepcoder", filepath.Join(dir, "a.parquet")},
	} {
		var out, errOut bytes.Buffer
		if code := run(append([]string{"dataset", "problems"}, args...), &out, &errOut); code == exitDone || !strings.Contains(errOut.String(), "try: ") {
			t.Errorf("%q: status %d, %s", args, code, &errOut)
		}
	}
}

// A file with any bad line writes nothing: the output keeps what it had, and is not made.
func TestDatasetConvert_isAllOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := `{"id": "%", "statement": "x", "tests": [{"input": "", "output": ""}]}` + "\n"
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.parquet")
	convert := func(text string) int {
		t.Helper()
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		return run([]string{"dataset", "convert", "--in", in, "--out", out}, &stdout, &stderr)
	}
	const lines = 4
	file := func(bad int) string { // the number of the bad line, 0 for none
		var b strings.Builder
		for n := 1; n <= lines; n++ {
			if line := strings.ReplaceAll(good, "%", string(rune('a'+n))); n == bad {
				b.WriteString(line[1:])
			} else {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	for bad := 1; bad <= lines; bad++ {
		if code := convert(file(bad)); code != exitUsage {
			t.Errorf("bad line %d: status %d", bad, code)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("bad line %d left %v, %v", bad, entries, err)
		}
	}
	if code := convert(file(0)); code != exitDone {
		t.Fatalf("good lines: status %d", code)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for bad := 1; bad <= lines; bad++ {
		convert(file(bad))
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("bad line %d changed the output, %v", bad, err)
		}
	}
}
