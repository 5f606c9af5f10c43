package lcb

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// What CPython's pickle.dumps makes of the string twoJSON, by protocol, compressed and in base64.
var pickles = map[int]string{
	2: "eJxrYIpoYmBgiK5WyswrKC1RslJQMo7JM1QwUgBSSjoKSvmlJVBxM4hASWpxSUllQSpIqLgkJTNPqVZHAUl7tGFsTJ4RqtaYUgODVEt03Wmlecklmfl5iTlKtbGFDHoAH44p2A==",
	3: "eJxrYI5oYmBgiK5WyswrKC1RslJQMo7JM1QwUgBSSjoKSvmlJVBxM4hASWpxSUllQSpIqLgkJTNPqVZHAUl7tGFsTJ4RqtaYUgODVEt03Wmlecklmfl5iTlKtbGFDHoAIBkp2Q==",
	4: "eJxrYJnaxgABPU3R1UqZeQWlJUpWCkrGMXmGCkYKQEpJR0Epv7QEKm4GEShJLS4pqSxIBQkVl6Rk5inV6iggaY82jI3JM0LVGlNqYJBqia47rTQvuSQzPy8xR6k2dooeALCVK0w=",
	5: "eJxrYJ3axgABPU3R1UqZeQWlJUpWCkrGMXmGCkYKQEpJR0Epv7QEKm4GEShJLS4pqSxIBQkVl6Rk5inV6iggaY82jI3JM0LVGlNqYJBqia47rTQvuSQzPy8xR6k2dooeALElK00=",
}

// hostile are pickles that are no string; the first three run a shell command when Python loads them.
var hostile = map[string]string{
	"reduce, protocol 0": "eJxLLsgvzqzgKq4sLknN5Sow4NIIK8kvTc5Q0C/JLdDPL89LTeEqMOQqKTDiCiow5tIDAJvHD4k=",
	"reduce, protocol 2": "eJxrYEouyC/OrOAqriwuSc3lKmSIEGBgYCjJL03OUNAvyS3Qzy/PS00pZGwtZAoqZNYDAH3ODxg=",
	"reduce, protocol 4": "eJxrYJmqzQABPawF+cWZFVN62Iori0tSc6dMntIjUJJfmpyhoF+SW6CfX56XmjKldUrQFD0AyJIS+w==",
	"a list":             "eJxrYJnayQABsVN6mqKrlTLzCkpLlKwUlIxj8gwVjBSAlJKOglJ+aQlU3AwiUJJaXFJSWZAKEiouScnMU6rVUUDSHm0YG5NnhKo1ptTAINUSXXdaaV5ySWZ+XmKOUm3slEQ9AGHcLKE=",
	"bytes":              "eJxrYJnaxgABzk3R1UqZeQWlJUpWCkrGMXmGCkYKQEpJR0Epv7QEKm4GEShJLS4pqSxIBQkVl6Rk5inV6iggaY82jI3JM0LVGlNqYJBqia47rTQvuSQzPy8xR6k2dooeAIpfKwM=",
}

const twoJSON = `[{"input": "3\n1 2 3\n", "output": "6\n", "testtype": "stdin"}, {"input": "[1]\n2", "output": "é", "testtype": "functional"}]`

var two = []Test{{"3\n1 2 3\n", "6\n", "stdin"}, {"[1]\n2", "é", "functional"}}

// squash compresses bytes and puts them in base64.
func squash(data []byte) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func read(cell string, limit int64) (out []Test, how Encoding, err error) {
	how, err = Tests(cell, limit, func(t Test) error { out = append(out, t); return nil })
	return out, how, err
}

func TestTests_allEncodings(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 300)
	long, err := json.Marshal([]Test{{string(big), "y", "stdin"}})
	if err != nil {
		t.Fatal(err)
	}
	wide := append([]byte{0x80, 4, 0x8d, byte(len(long)), byte(len(long) >> 8), 0, 0, 0, 0, 0, 0}, long...)
	framed := append([]byte{0x80, 4, 'X', byte(len(long)), byte(len(long) >> 8), 0, 0}, long...)
	put := append(bytes.Clone(framed), 'r', 1, 0, 0, 0, '.')
	type row struct {
		cell string
		how  Encoding
		want []Test
	}
	rows := map[string]row{
		"JSON":              {twoJSON, JSON, two},
		"JSON, blanks":      {" \n" + twoJSON + "\n", JSON, two},
		"no tests":          {"[]", JSON, nil},
		"compressed":        {squash([]byte(twoJSON)), Compressed, two},
		"compressed, empty": {squash([]byte("[]")), Compressed, nil},
		"64-bit length":     {squash(append(wide, 0x94, '.')), Pickled, []Test{{string(big), "y", "stdin"}}},
		"frame behind":      {squash(append(framed, 0x95, 2, 0, 0, 0, 0, 0, 0, 0, 0x94, '.')), Pickled, []Test{{string(big), "y", "stdin"}}},
		"long put":          {squash(put), Pickled, []Test{{string(big), "y", "stdin"}}},
		"short string":      {squash([]byte("\x80\x04\x8c\x02[].")), Pickled, nil},
		"line breaks":       {squash([]byte(twoJSON))[:20] + "\n" + squash([]byte(twoJSON))[20:], Compressed, two},
	}
	for p, cell := range pickles {
		rows[fmt.Sprint("protocol ", p)] = row{cell, Pickled, two}
	}
	for name, c := range rows {
		got, how, err := read(c.cell, 1<<20)
		if diff := cmp.Diff(c.want, got); diff != "" || how != c.how || err != nil {
			t.Errorf("%s: %s, %v, want %s (-want +got):\n%s", name, how, err, c.how, diff)
		}
	}
	stop := errors.New("stop")
	for _, cell := range []string{twoJSON, pickles[4]} {
		if _, err := Tests(cell, 1<<20, func(Test) error { return stop }); !errors.Is(err, stop) || fault.Is(err, fault.Corrupt) {
			t.Errorf("%v, want the error of the caller", err)
		}
	}
}

// Whatever a pickle wants besides a string is refused by name, and nothing is run.
func TestTests_refusesWhatIsNoString(t *testing.T) {
	t.Parallel()
	for name, cell := range hostile {
		got, _, err := read(cell, 1<<20)
		// Protocol 4 begins with the name of a module, which is a string, but no list of tests.
		named := err != nil && (strings.Contains(err.Error(), "instruction") || strings.Contains(err.Error(), "no list of tests"))
		if !fault.Is(err, fault.Corrupt) || !named || got != nil {
			t.Errorf("%s: %v, %v; want it refused", name, got, err)
		}
	}
	// Each byte that is no allowed instruction, before and behind the string.
	before, behind := "\x80\x95\x8cX\x8d", "\x94\x95qr."
	for op := range 256 {
		c := string([]byte{byte(op)})
		head, tail := squash([]byte("\x80\x04"+c+"\x02[].")), squash([]byte("\x80\x04\x8c\x02[]"+c+"\x00."))
		if _, _, err := read(head, 1<<20); !strings.Contains(before, c) && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "instruction")) {
			t.Errorf("%#02x before the string: %v, want it refused", op, err)
		}
		if _, _, err := read(tail, 1<<20); !strings.Contains(behind, c) && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "instruction")) {
			t.Errorf("%#02x behind the string: %v, want it refused", op, err)
		}
	}
}

func TestTests_damage(t *testing.T) {
	t.Parallel()
	for name, cell := range map[string]string{
		"empty": "", "null": "null", "an object": "{}", "no base64": "%%%", "base64 of text": "aGVsbG8gd29ybGQ=", "cut JSON": twoJSON[:60],
		"two lists": "[][]", "numbers": "[1]", "a null test": "[null]", "another kind": `[{"input":"","output":"","testtype":"shell"}]`,
		"no kind": `[{"input":"","output":""}]`, "a list as input": `[{"input":[],"output":"","testtype":"stdin"}]`,
		"compressed nothing": squash(nil), "version 1": squash([]byte("\x80\x01\x8c\x02[].")), "version 9": squash([]byte("\x80\x09\x8c\x02[].")),
		"no end": squash([]byte("\x80\x04\x8c\x02[]")), "cut string": squash([]byte("\x80\x04\x8c\x09[]")), "longer string": squash([]byte("\x80\x04\x8c\x01[].")),
		"more behind": squash([]byte("\x80\x04\x8c\x02[].x")), "huge length": squash([]byte("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff[].")),
		"no JSON in it": squash([]byte("\x80\x04\x8c\x02hi.")), "cut base64": pickles[4][:80], "cut length": squash([]byte("\x80\x04X\x01")),
	} {
		if got, _, err := read(cell, 1<<20); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, %v; want Corrupt", name, got, err)
		}
	}
	good := pickles[5]
	for at := range len(good) {
		_, _, _ = read(good[:at]+"A"+good[at+1:], 1<<20) // must come back
	}
}

// allocated is what a function allocates in all, in MiB.
func allocated(do func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
}

// A cell that inflates to very much is refused at the limit, without having been inflated. Not parallel: it counts allocations.
func TestTests_boundsInflation(t *testing.T) {
	const size = 64 << 20
	var b bytes.Buffer
	e := base64.NewEncoder(base64.StdEncoding, &b)
	z := zlib.NewWriter(e)
	blanks := bytes.Repeat([]byte(" "), 1<<20)
	_, _ = z.Write([]byte("["))
	for range size / len(blanks) {
		_, _ = z.Write(blanks)
	}
	_ = z.Close()
	_ = e.Close()
	var err error
	used := allocated(func() { _, _, err = read(b.String(), 1<<20) })
	if !errors.Is(err, errTooLarge) || !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want too large", err)
	}
	if used > 20 {
		t.Errorf("%.0f MiB were allocated", used)
	}
	exact := squash([]byte(twoJSON))
	if _, _, err := read(exact, int64(len(twoJSON))); err != nil {
		t.Errorf("exactly at the limit: %v", err)
	}
	if _, _, err := read(exact, int64(len(twoJSON))-1); !errors.Is(err, errTooLarge) {
		t.Errorf("one byte over the limit: %v, want too large", err)
	}
}

const line = `{"question_title": "Two Sum \u00e9", "question_content": "Add.\nNow.", "platform": "leetcode", "question_id": "2", "contest_id": "w-1", ` +
	`"contest_date": "2024-01-02T00:00:00", "starter_code": "class S:", "difficulty": "easy", "public_test_cases": "[]", "private_test_cases": "x\"]}", "metadata": "{\"func_name\": \"f\"}"}`

func all(text string, o Options) (out []Problem, err error) {
	err = Read(strings.NewReader(text), o, func(p *Problem) error { out = append(out, *p); return nil })
	return out, err
}

func TestRead(t *testing.T) {
	t.Parallel()
	want := Problem{
		Title: "Two Sum é", Content: "Add.\nNow.", Platform: "leetcode", ID: "2", Contest: "w-1", Date: "2024-01-02T00:00:00", Starter: "class S:", Difficulty: "easy",
	}
	got, err := all(line+"\n\n \t\r\n"+line, Options{})
	if diff := cmp.Diff([]Problem{want, want}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	want.Public, want.Private, want.Metadata = "[]", `x"]}`, `{"func_name": "f"}`
	got, err = all(line+"\r\n", Options{Tests: true})
	if diff := cmp.Diff([]Problem{want}, got); diff != "" || err != nil {
		t.Errorf("with tests: %v (-want +got):\n%s", err, diff)
	}
	// Unknown fields of every kind are skipped; numbers and null are taken as ids.
	got, err = all(`{"a":[{"b":["]"]},1,-2.5e3,true,null,""],"c":{},"platform":"atcoder","d":7 ,"question_id":1234,"contest_id":null}`, Options{})
	if diff := cmp.Diff([]Problem{{Platform: "atcoder", ID: "1234"}}, got); diff != "" || err != nil {
		t.Errorf("unknown fields: %v (-want +got):\n%s", err, diff)
	}
	if got, err = all("", Options{}); got != nil || err != nil {
		t.Errorf("an empty file: %v, %v", got, err)
	}
}

func TestRead_refusals(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"cut off": line[:100], "cut off behind a key": line[:17], "a list": "[" + line + "]", "text": "hello", "two on a line": line + line, "a comma": line + ",",
		"a line break in a text": strings.Replace(line, "easy", "ea\nsy", 1), "a line break": strings.Replace(line, ", ", ",\n", 1), "no id": `{"platform":"atcoder"}`,
		"no platform": `{"question_id":"a"}`, "empty": "{}", "title as list": `{"question_title":[]}`, "title as truth": `{"question_title":true}`,
		"no colon": `{"a" 1}`, "no comma": `{"a":1 "b":2}`, "final comma": `{"a":1,}`, "a bad escape": `{"platform":"\x","question_id":"1"}`, "brackets": `{"a":]}`,
		"deep": `{"a":` + strings.Repeat("[", 200), "no value": `{"a":,"b":1}`, "a long key": `{"` + strings.Repeat("k", 2000) + `":1}`, "large": `{"platform":"` + strings.Repeat("x", 200) + `"}`,
		"a long word": `{"a":` + strings.Repeat("1", 100) + `}`, "compressed": "\x1f\x8b\x08",
	} {
		got, err := all(line+"\n"+text+"\n", Options{MaxText: 100})
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "line 2") || len(got) != 1 || fault.HintOf(err) == "" {
			t.Errorf("%s: %d problems, %v; want one, and Corrupt for line 2", name, len(got), err)
		}
	}
	stop := errors.New("stop")
	if err := Read(strings.NewReader(line), Options{}, func(*Problem) error { return stop }); !errors.Is(err, stop) || fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want the error of the caller", err)
	}
	if err := Read(io.MultiReader(strings.NewReader(line[:50]), failing{stop}), Options{}, nil); !errors.Is(err, stop) || fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want the error of the reader", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Tests that nobody wants are not held. Not parallel: it counts allocations.
func TestRead_skipsWithoutHolding(t *testing.T) {
	block := strings.Repeat("QUJD", 1<<18)
	parts := []io.Reader{strings.NewReader(`{"private_test_cases": "`)}
	for range 40 {
		parts = append(parts, strings.NewReader(block))
	}
	parts = append(parts, strings.NewReader(`", "platform": "atcoder", "question_id": "abc387_f"}`))
	n := 0
	used := allocated(func() {
		if err := Read(io.MultiReader(parts...), Options{}, func(p *Problem) error { n++; return nil }); err != nil {
			t.Error(err)
		}
	})
	if n != 1 || used > 4 {
		t.Errorf("%d problems, %.1f MiB allocated for a line of 40 MiB", n, used)
	}
}

func TestProblem_identities(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    Problem
		want string
		url  string // where a row of the same problem may come from
	}{
		{Problem{Platform: "atcoder", ID: "abc387_f"}, "atcoder:abc387_f", "https://atcoder.jp/contests/abc387/tasks/abc387_f"},
		{Problem{Platform: "codeforces", ID: "1873_A"}, "codeforces:1873+A", "https://codeforces.com/problemset/problem/1873/A"},
		{Problem{Platform: "codeforces", ID: "1899_B2"}, "codeforces:1899+B2", "https://codeforces.com/contest/1899/problem/B2"},
		{Problem{Platform: "leetcode", ID: "1", Title: "Two Sum"}, "leetcode:two-sum", "https://leetcode.com/problems/two-sum/description/"},
		{Problem{Platform: "leetcode", Title: "Pow(x, n)"}, "leetcode:powx-n", "https://leetcode.com/problems/powx-n/"},
		{Problem{Platform: "leetcode", Title: "Pascal's Triangle II"}, "leetcode:pascals-triangle-ii", "https://leetcode.com/problems/pascals-triangle-ii"},
		{Problem{Platform: "leetcode", Title: "Best - Time  to_Buy "}, "leetcode:best-time-to-buy", "http://www.leetcode.com/problems/best-time-to-buy"},
		{Problem{Platform: "other", ID: "1"}, "", ""},
	} {
		if got := c.p.PlatformID(); got != c.want || c.url != "" && got != dataset.PlatformID(c.url) {
			t.Errorf("%+v: %q, want %q, which is %q of the address", c.p, got, c.want, dataset.PlatformID(c.url))
		}
	}
	set := map[string]bool{}
	p := Problem{Platform: "leetcode", Title: "Two Sum", Content: "Find two numbers of a list that add up to a target."}
	if !dataset.Exclude(set, p.Exclusion()) || len(set) != 2 {
		t.Errorf("identities %v, want two", set)
	}
}

func TestReadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadDir(t.Context(), dir, Options{}, nil); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("an empty directory: %v, want NotFound with a hint", err)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("test6.jsonl", strings.Replace(line, `"2"`, `"6"`, 1))
	put("test.jsonl", line+"\n"+line)
	put("other.jsonl", "no")
	var got []string
	missing, err := ReadDir(t.Context(), dir, Options{}, func(file string, p *Problem) error { got = append(got, file+" "+p.ID); return nil })
	if diff := cmp.Diff([]string{"test.jsonl 2", "test.jsonl 2", "test6.jsonl 6"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(Files()[1:5], missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	put("test2.jsonl", "no")
	if _, err := ReadDir(t.Context(), dir, Options{}, func(string, *Problem) error { return nil }); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "test2.jsonl: ") {
		t.Errorf("%v, want Corrupt and the file", err)
	}
}

// FuzzRead gives any bytes to the reader of lines. What it takes, Go's JSON decoder takes too, line for line.
func FuzzRead(f *testing.F) {
	f.Add(line + "\n" + line)
	f.Add(`{"a":[{"b":["]"]},1,-2.5e3,true,null,""],"platform":"atcoder","question_id":1234}`)
	f.Add("{\"platform\":\"\\ud800\",\"question_id\":\"\xff\"}")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := all(text, Options{Tests: true, MaxText: 1 << 16, MaxCell: 1 << 16})
		if err != nil {
			if !fault.Is(err, fault.Corrupt) {
				t.Errorf("%v, want Corrupt", err)
			}
			return
		}
		n := 0
		for l := range strings.Lines(text) {
			var fields map[string]json.RawMessage
			if strings.Trim(l, " \t\r\n") == "" || json.Unmarshal([]byte(l), &fields) != nil {
				if strings.Trim(l, " \t\r\n") != "" {
					n++ // words that nobody looks at may be no JSON
				}
				continue
			}
			var id string
			if json.Unmarshal(fields["question_id"], &id) == nil && id != got[n].ID {
				t.Errorf("line %q has id %q, want %q", l, got[n].ID, id)
			}
			n++
		}
		if n != len(got) {
			t.Errorf("%d problems in %d lines", len(got), n)
		}
	})
}

// FuzzTests gives any bytes to the reader of tests, as a cell and as what is inside the compression.
func FuzzTests(f *testing.F) {
	f.Add([]byte(twoJSON))
	f.Add([]byte("\x80\x04\x95\x04\x00\x00\x00\x00\x00\x00\x00\x8c\x02[]\x94."))
	f.Add([]byte("cposix\nsystem\n(S'true'\ntR."))
	f.Add([]byte("\x80\x02X\x02\x00\x00\x00[]q\x00."))
	for _, cell := range pickles {
		f.Add([]byte(cell))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, cell := range []string{string(data), squash(data)} {
			got, how, err := read(cell, 1<<20)
			if err != nil && !fault.Is(err, fault.Corrupt) {
				t.Errorf("%v, want Corrupt", err)
			}
			if err == nil && how == "" {
				t.Errorf("%d tests in no encoding", len(got))
			}
			for _, one := range got {
				if one.Type != "stdin" && one.Type != "functional" {
					t.Errorf("a test of the kind %q", one.Type)
				}
			}
		}
	})
}
