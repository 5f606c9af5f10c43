package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/testutil"
)

// foreign are contents that no command can want, each with a word that nobody may see: a person named the wrong file, and its lines belong to nobody's log.
func foreign() map[string][]byte {
	const word = "Geheimnis"
	long := strings.Repeat(word+" ", 2000)
	return map[string][]byte{
		"accounts":              []byte(word + ":x:0:0:" + word + ":/root:/bin/" + word + "\n" + word + "1:x:1:1:d:/:/bin/no\n"),
		"a word":                []byte(word),
		"much text":             []byte(long),
		"lines of text":         []byte(strings.ReplaceAll(long, " ", "\n")),
		"a list in YAML":        []byte("- " + word + "\n- " + word + "\n"),
		"half a list in YAML":   []byte("a: [" + word + "\n"),
		"an anchor in YAML":     []byte("&" + word + " x"),
		"an alias in YAML":      []byte("- *" + word + "\n"),
		"a tag in YAML":         []byte("!!" + word + " x\n"),
		"a directive in YAML":   []byte("%" + word + " 1\n--- x\n"),
		"an escape in YAML":     []byte(`"\q` + word + `"`),
		"nested keys in YAML":   []byte("a: b: " + word + "\n"),
		"a tab in YAML":         []byte("a:\n\t- " + word + "\n"),
		"a text in JSON":        []byte(`"` + word + `"`),
		"a list in JSON":        []byte(`["` + word + `"]`),
		"half an object":        []byte(`{"` + word + `": "` + word),
		"half a text":           []byte(`{"a": "` + word),
		"two values":            []byte(`{} "` + word + `"`),
		"bytes":                 []byte("\x00\x01\xff" + word + "\x00\xfe" + word),
		"a certificate":         []byte("-----BEGIN " + word + "-----\n" + word + "\n-----END " + word + "-----\n"),
		"a Parquet file":        []byte("PAR1" + long + "PAR1"),
		"a header of tensors":   append([]byte{20, 0, 0, 0, 0, 0, 0, 0}, []byte(`"`+word+`"                    `)...),
		"a cut header":          append([]byte{200, 0, 0, 0, 0, 0, 0, 0}, []byte(`{"a": "`+word)...),
		"a program":             []byte("#!/bin/false " + word + "\n" + word + "\n"),
		"an object of the rest": []byte("{\n  \"a\": " + word + "\n}"),
	}
}

// Every command that reads a file which a person names says what is wrong with another one, and where, and nothing of what is in it.
func TestForeignFiles_areNotShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	model := filepath.Join(testutil.Root(), "internal", "demo", "model")
	if err := os.CopyFS(b.path("model"), demo.Model()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"set", "export", "evaluation", "lcb"} {
		if err := os.Mkdir(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.write("own.jsonl", `{"id": "a", "statement": "x", "tests": [{"input": "", "output": ""}]}`)
	places := []struct{ file, command string }{
		{"x", "study run DIR/x"},
		{"x", "study show DIR/x"},
		{"x", "config validate -f DIR/x"},
		{"x", "config print -f DIR/x"},
		{"x", "demo --temporal=DIR/none -f DIR/x"},
		{"x", "plan -f DIR/x"},
		{"x", "simulate -f DIR/x"},
		{"x", "eval --model=" + model + " --data=jsonl --set=DIR/own.jsonl --config=DIR/x"},
		{"x", "judge --cases=DIR/x"},
		{"x", "dataset convert --in=DIR/x --out=DIR/o.parquet"},
		{"x", "dataset problems --format=jsonl DIR/x"},
		{"x", "dataset problems --format=taco DIR/x"},
		{"x", "dataset problems --format=deepcoder DIR/x"},
		{"x", "dataset prepare --shards=DIR/x --tokenizer=" + model + " --out=DIR/o"},
		{"x", "dataset prepare --shards=DIR/own.jsonl --exclude=DIR/x --tokenizer=" + model + " --out=DIR/o"},
		{"x", "eval --model=" + model + " --data=jsonl --set=DIR/x --out=DIR/e"},
		{"x", "eval --model=" + model + " --data=taco --set=DIR/x --out=DIR/e"},
		{"x", "eval compare DIR/x DIR/x"},
		{"x", "bench step --batch=DIR/x --model=" + model + " --out=DIR/b"},
		{"x", "tokenize --tokenizer=" + model + " DIR/x"},
		{"x", "detokenize --tokenizer=" + model + " DIR/x"},
		{"x", "chat render --tokenizer=" + model + " DIR/x"},
		{"x", "sandbox run --python=DIR/x DIR/own.jsonl"},
		{"x", "dev --data=DIR/d --temporal=DIR/x"},
		{"lcb/test.jsonl", "dataset lcb DIR/lcb"},
		{"lcb/test.jsonl", "dataset problems --format=lcb --release=1 DIR/lcb"},
		{"set/manifest.json", "dataset funnel DIR/set"},
		{"set/manifest.json", "dataset check DIR/set"},
		{"set/manifest.json", "eval --model=" + model + " --data=prepared --set=DIR/set"},
		{"set/decisions.jsonl", "dataset decisions DIR/set"},
		{"export/certificate.json", "verify-export DIR/export"},
		{"model/tokenizer.json", "tokenize --tokenizer=DIR/model DIR/own.jsonl"},
		{"model/config.json", "plan demo --model=DIR/model"},
		{"model/model.safetensors", "plan demo --model=DIR/model"},
		{"model/config.json", "eval --model=DIR/model --data=jsonl --set=DIR/own.jsonl --out=DIR/e"},
		{"model/model.safetensors", "eval --model=DIR/model --data=jsonl --set=DIR/own.jsonl --out=DIR/e --assign=rollout.max_total=300 --assign=rollout.max_prompt=200 --assign=rollout.max_response=100"},
		{"model/tokenizer_config.json", "chat render --tokenizer=DIR/model DIR/own.jsonl"},
	}
	refused := map[string]int{}
	for _, p := range places {
		old, err := os.ReadFile(b.path(p.file))
		for what, data := range foreign() {
			if strings.HasPrefix(p.command, "dataset prepare --shards=DIR/x") && what != "accounts" {
				refused[p.command]++ // it starts a sandbox first; the reader is that of dataset problems
				continue
			}
			if err := os.WriteFile(b.path(p.file), data, 0o755); err != nil {
				t.Fatal(err)
			}
			var out, errOut bytes.Buffer
			args := strings.Fields(strings.ReplaceAll(p.command, "DIR", b.dir))
			code := run(args, &out, &errOut)
			text := errOut.String()
			if at := strings.Index(out.String()+text, "Geheim"); at >= 0 {
				all := out.String() + text
				t.Errorf("%s with %s shows the file:\n%s", p.command, what, all[max(0, at-200):min(len(all), at+200)])
			}
			if inside.MatchString(strings.ReplaceAll(text, b.dir, "")) {
				t.Errorf("%s with %s holds %q:\n%.400s", p.command, what, inside.FindString(strings.ReplaceAll(text, b.dir, "")), text)
			}
			if len(text) > 8000 {
				t.Errorf("%s with %s prints %d bytes", p.command, what, len(text))
			}
			if code != exitDone {
				refused[p.command]++
				if !strings.Contains(text, "error: ") || !strings.Contains(text, "try: ") {
					t.Errorf("%s with %s: status %d, no hint:\n%.400s", p.command, what, code, text)
				}
			}
		}
		if err != nil {
			err = os.Remove(b.path(p.file))
		} else {
			err = os.WriteFile(b.path(p.file), old, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if refused[p.command] < 20 {
			t.Errorf("%s refuses only %d", p.command, refused[p.command])
		}
	}
}
