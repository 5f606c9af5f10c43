package main

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/internal/testutil"
)

// inside are words of the language and its packages, which no person has to know.
var inside = regexp.MustCompile(`\b[a-z]+\.[A-Z][A-Za-z]+\b|(?:^|[^.\w])json: |\bstrconv\b|unmarshal|\b(32|64) bit\b|\bu?int(8|16|32|64)?\b|\bfloat(32|64)?\b|\(string\)|\d(ns|µs)\b|%!|\bl?stat /|goroutine|\.go:\d`)

// numeric are the flags of all commands whose values are numbers or times, by the command's path.
func numeric(t *testing.T) map[string][]*kong.Flag {
	t.Helper()
	var c cli
	parser, err := grammar(&c)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*kong.Flag{}
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			typ := f.Target.Type()
			for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			if k := typ.Kind(); k >= reflect.Int && k <= reflect.Float64 {
				out[n.FullPath()] = append(out[n.FullPath()], f)
			}
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(parser.Model.Node)
	return out
}

// A value that is no number of the flag's kind is refused with the flag, what it wants and what it got, whichever command has it.
func TestNumbers_whatIsNoneIsSaidInWords(t *testing.T) {
	t.Parallel()
	flags := 0
	for command, list := range numeric(t) {
		for _, f := range list {
			typ := f.Target.Type()
			for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			want, bad := "want a whole number", []string{"abc", "", "1.5", "1e3", "NaN", "Inf", "99999999999999999999", "5s", "1 2"}
			switch {
			case typ == reflect.TypeFor[time.Duration]():
				want, bad = "want a time with its unit, such as 90s", []string{"abc", "", "5", "NaN", "1e9h", "9999999999h", "5 m"}
			case typ.Kind() == reflect.Float64:
				want, bad = "want a number", []string{"abc", "", "NaN", "Inf", "-inf", "1e999", "5s", "0x", "1,5"}
			case typ.Kind() == reflect.Uint64:
				want, bad = "want a whole number that is not negative", append(bad, "-1")
			}
			flags++
			for _, value := range bad {
				if f.Target.Kind() == reflect.Slice && value == "" {
					continue // no element
				}
				args := append(strings.Fields(command)[1:], "--"+f.Name+"="+value)
				var out, errOut bytes.Buffer
				code := run(args, &out, &errOut)
				text := errOut.String()
				if code != exitUsage || out.Len() > 0 || !strings.Contains(text, fmt.Sprintf("--%s: %s", f.Name, want)) || !strings.Contains(text, fmt.Sprintf("got %q", value)) ||
					!strings.Contains(text, "--help") || inside.MatchString(text) {
					t.Errorf("%q: status %d\n%s%s(%q)", args, code, out.String(), text, inside.FindString(text))
				}
			}
		}
	}
	if flags < 60 {
		t.Errorf("only %d flags found", flags)
	}
}

// A number that no one can mean, negative or huge, is refused or taken in every command that has one; what is said has no word of the language, the
// number as it was typed, and a unit that a person typed. The commands get nothing that they could start with.
func TestNumbers_absurdOnesAreSaidInWords(t *testing.T) {
	b := newBench(t)
	b.write("own.jsonl", `{"id": "a", "statement": "x", "tests": [{"input": "", "output": ""}]}`)
	b.write("cases.jsonl", `{"id": 1}`)
	t.Setenv("TEMPORAL_ADDRESS", fmt.Sprintf("127.0.0.1:%d", testutil.FreePort(t)))
	model := filepath.Join(testutil.Root(), "internal", "demo", "model")
	with := map[string]string{
		"steady demo":              "--data=DIR/d --report=DIR/r.html --temporal=DIR/none",
		"steady dev":               "--data=DIR/d --temporal=DIR/none",
		"steady worker":            "--roles=judge --wait-server=0s --data=DIR/w",
		"steady bench step":        "--model=DIR/none --batch=DIR/none --out=DIR/b",
		"steady sandbox run":       "DIR/none",
		"steady judge":             "--cases=DIR/cases.jsonl",
		"steady dataset prepare":   "--shards=DIR/none --tokenizer=" + model + " --out=DIR/s",
		"steady dataset problems":  "--format=lcb DIR/none",
		"steady eval run":          "--model=DIR/nomodel --data=jsonl --set=DIR/own.jsonl",
		"steady pretrain":          "--out=DIR/own.jsonl/x",
		"steady trajectory show":   "r --data=DIR/nowhere",
		"steady study run":         "study-staleness --data=DIR/d --temporal=DIR/none --out=DIR/o",
		"steady watch":             "r --data=DIR/nowhere",
		"steady simulate":          strings.Join(small[1:], " "),
		"steady plan":              "sc-taco-1gpu",
		"steady doctor":            "--data=DIR/d --temporal=DIR/none",
		"steady trajectory export": "r --data=DIR/nowhere --out=DIR/t",
	}
	// The numbers that must be named, for they are out of the flag's range.
	named := map[string]bool{}
	for _, f := range strings.Fields(`demo--port demo--ui-port dev--port dev--ui-port dev--max-sequences demo--threads demo--slots worker--threads worker--slots
		bench-step--threads dataset-prepare--train dataset-prepare--dev dataset-prepare--slots eval-run--samples eval-run--slots eval-run--threads
		eval-run--max-sequences pretrain--short pretrain--full pretrain--threads study-run--port study-run--slots plan--gpus plan--memory plan--price plan--cache-tokens
		plan--mean-prompt plan--mean-response simulate--rollout-workers simulate--slots simulate--update-seconds simulate--judge-seconds simulate--checkpoint-seconds
		simulate--swap-seconds simulate--restart-seconds simulate--hop-milliseconds simulate--failures`) {
		named[f] = true
	}
	seen := map[string]bool{}
	for command, flags := range numeric(t) {
		base, ok := with[command]
		if !ok {
			t.Errorf("%s has numbers and is not tried", command)
			continue
		}
		for _, f := range flags {
			id := strings.ReplaceAll(strings.TrimPrefix(command, "steady "), " ", "-") + "--" + f.Name
			values := []string{"-1", fmt.Sprint(math.MinInt64), fmt.Sprint(math.MaxInt64), fmt.Sprint(math.MaxInt64 - 1)}
			switch {
			case f.Target.Type() == reflect.TypeFor[time.Duration]():
				values = []string{"-1s", "-2562047h"}
			case f.Target.Kind() == reflect.Float64:
				values = []string{"-1", "-1e308", "1e308", "-1e-300", "1e19"}
			case f.Target.Kind() == reflect.Uint64:
				values = []string{fmt.Sprint(uint64(math.MaxUint64))}
			}
			for _, value := range values {
				args := append(strings.Fields(command)[1:], strings.Fields(strings.ReplaceAll(base, "DIR", b.dir))...)
				args = append(args, "--"+f.Name+"="+value)
				var out, errOut bytes.Buffer
				code := run(args, &out, &errOut)
				text := strings.ReplaceAll(errOut.String(), b.dir, "DIR")
				if word := inside.FindString(text); word != "" {
					t.Errorf("%q holds %q:\n%s", args, word, text)
				}
				if code != exitUsage && code != exitDone && code != exitUnreachable && command != "steady doctor" {
					t.Errorf("%q: status %d\n%s", args, code, text)
				}
				if named[id] {
					seen[id] = true
					if code != exitUsage || !strings.Contains(text, "--"+f.Name) || !strings.Contains(strings.ReplaceAll(text, "e+", "e"), value) {
						t.Errorf("%q: status %d, the flag and its value are not named:\n%s", args, code, text)
					}
				}
			}
		}
	}
	if len(seen) != len(named) {
		t.Errorf("%d of %d flags were tried: %v", len(seen), len(named), seen)
	}
}
