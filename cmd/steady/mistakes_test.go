package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/ui"
)

// Mistakes that people make: each ends with its status, says what and where in its first line, and what to do in a line of its own. Nothing else is printed: no usage
// text, no stack, no name of a function.
func TestMistakes_sayWhatWhereAndWhatToDo(t *testing.T) {
	b := newBench(t)
	b.store(b.path("data"))
	b.write("empty/config.json", "{}")
	b.write("cases.jsonl", `{"id": 1}`)
	b.write("own.jsonl", `{"id": "a", "statement": "x", "tests": []}`)
	b.write("bad.jsonl", "not JSON\n{}\n{\"id\": \"a\"}")
	b.write("run.yaml", "run:\n  stepz: 3\n")
	busy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := fmt.Sprint(busy.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
	free := fmt.Sprint(testutil.FreePort(t))
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:"+free)
	model := filepath.Join(testutil.Root(), "internal", "demo", "model")

	for _, c := range []struct {
		name, args string
		status     int
		what, do   string
	}{
		{"no store", "report r --data=DIR/nowhere", 2, "no artifact store at DIR/nowhere/store", "as --data"},
		{"a wrong run", "report q --data=DIR/data", 2, `no run "q" in DIR/data/store; there is r`, "name one of these runs"},
		{"a wrong run of a trajectory", "trajectory show q --group 1 --data=DIR/data", 2, `no run "q"`, "name one of these runs"},
		{"a wrong study", "study report nope --data=DIR/data --out=DIR/o", 2, `no study "nope" in DIR/data/store; there is none`, "steady study run"},
		{"a wrong lineage", "ledger r --lineage=l9 --data=DIR/data", 2, `no lineage "l9"; there is l0, l1`, "--lineage"},
		{"no server", "worker --roles=judge --wait-server=0s --data=DIR/w", 3, "Temporal at 127.0.0.1:" + free + " does not answer", "start `steady dev`"},
		{"a busy port", "dev --data=DIR/d --temporal=DIR/temporal --port=" + port + " --ui-port=" + free, 2, "port " + port + " is in use", "--port"},
		{"a busy port of the Web UI", "demo --data=DIR/d --report=DIR/r.html --temporal=DIR/temporal --port=" + free + " --ui-port=" + port, 2, "port " + port + " is in use", "--ui-port"},
		{"no temporal program", "dev --data=DIR/d --temporal=DIR/none", 2, "DIR/none", "temporal"},
		{"a model that is none", "eval --model=DIR/nomodel --data=jsonl --set=DIR/own.jsonl", 2, "DIR/nomodel", "the directory of a model"},
		{"a model without files", "eval --model=DIR/empty --data=jsonl --set=DIR/good.jsonl --out=DIR/e", 2, "DIR/good.jsonl", "JSON Lines"},
		{"a model of another family", "eval --model=DIR/empty --data=taco --set=DIR/empty --out=DIR/e", 2, "DIR/empty has no manifest.json", "prepare"},
		{"a model directory of a run", "demo --set=model.path=DIR/empty --data=DIR/d --report=DIR/r.html --temporal=DIR/temporal", 2, "DIR/empty", "model"},
		{"a wrong interpreter", "sandbox run DIR/file --python=DIR/notpython", 2, "DIR/notpython", "Python"},
		{"an unknown command", "evla", 2, "unexpected argument evla", "steady --help"},
		{"an unknown subcommand", "dataset prepar", 2, "unexpected argument prepar", "--help"},
		{"an unknown flag", "demo --freshly", 2, "unknown flag --freshly", "steady demo --help"},
		{"a missing argument", "report", 2, `expected "<run>"`, "steady report --help"},
		{"a missing flag", "judge", 2, "missing flags: --cases", "steady judge --help"},
		{"a value that is none of the list", "dev --engine=gpu", 2, `--engine must be one of "cpu","ref","cuda"`, "steady dev --help"},
		{"a file that is not there", "judge --cases=DIR/none.jsonl", 2, "none.jsonl", "steady judge --help"},
		{"a file with mistakes", "judge --cases=DIR/cases.jsonl", 2, "DIR/cases.jsonl line 1", `a line is {"id"`},
		{"own problems with mistakes", "dataset convert --in=DIR/own.jsonl --out=DIR/own.parquet", 2, `DIR/own.jsonl: line 1: field "tests" is empty`, "docs/your-own.md"},
		{"own problems with a line that is no JSON", "dataset convert --in=DIR/bad.jsonl --out=DIR/own.parquet", 2, `DIR/bad.jsonl: line 3: field "statement" is missing; field "tests" is missing`, "docs/your-own.md"},
		{"excluded problems with mistakes", "dataset prepare --shards=DIR/file --tokenizer=" + model + " --exclude=DIR/bad.jsonl --out=DIR/s", 2, `--exclude: DIR/bad.jsonl: line 3: field "id" is not known`, `{"platform": "atcoder`},
		{"own problems under a wrong name", "dataset convert --in=DIR/own.jsonl --out=DIR/own.json", 2, "does not end in .parquet", "problems.parquet"},
		{"own problems that are not there", "dataset problems --format=jsonl DIR/none.jsonl", 2, "DIR/none.jsonl", "JSON Lines"},
		{"a shard that is none", "dataset prepare --shards=DIR/none --tokenizer=" + model + " --out=DIR/s", 2, "DIR/none", "schema of BAAI/TACO"},
		{"a data set that is none", "dataset funnel DIR/empty", 2, "DIR/empty has no manifest.json", "data set"},
		{"an unknown key in a file", "config print -f DIR/run.yaml", 2, "did you mean steps? (file DIR/run.yaml, line 2)", "`steady config print`"},
		{"an unknown key", "config print --set=run.stepz=3", 2, "did you mean steps?", "`steady config print`"},
		{"a GPU without its program", "dev --engine=cuda --data=DIR/d", 2, "--engine cuda", "make build-cuda"},
		{"an export that is none", "verify-export DIR/empty", 2, "DIR/empty has no certificate.json", "export"},
		{"evaluations that are none", "eval compare DIR/file DIR/file", 2, "DIR/file is no result of an evaluation", "finished evaluation"},
		{"more GPUs than a plan takes", "plan sc-taco-2gpu --gpus 1000000", 2, "--gpus 1000000: want at most 1025", "leave --gpus out"},
		{"a simulation of half a run", "simulate --recipe demo --set run.init_run=r --set run.init_step=3", 2, `run.init_run is "r"`, "--steps"},
		{"a time that is none", "simulate --recipe demo --update-seconds=-1", 2, "--update-seconds must be from 0.001 to 86400 seconds (a day), got -1", "steady simulate --help"},
		{"a configuration in a sweep", "simulate --recipe demo --sweep prefill=x", 2, `with prefill=x: rollout.prefill: want a whole number, got "x"`, "`steady config print`"},
		{"a number of a wrong kind", "dev --port=80.5", 2, `--port: want a whole number, got "80.5"`, "steady dev --help"},
		{"a study that is none", "study run DIR/file", 2, "configuration: want the keys of a study, got a text (file DIR/file, line 1)", "docs/studies.md"},
		{"neither group nor validation", "trajectory show r --data=DIR/data", 2, "neither --group nor --validation", "--group"},
		{"tokens in text", "trajectory show r --group=1 --tokens --data=DIR/data", 2, "--tokens needs --format json", "--format json"},
		{"an unknown shell", "completion csh", 2, "bash", "steady completion --help"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := run(strings.Fields(strings.ReplaceAll(c.args, "DIR", b.dir)), &out, &errOut)
			text := errOut.String()
			what, do := strings.ReplaceAll(c.what, "DIR", b.dir), strings.ReplaceAll(c.do, "DIR", b.dir)
			var hints []string
			for line := range strings.Lines(text) {
				switch {
				case strings.HasPrefix(line, "try: "):
					hints = append(hints, line)
				case !strings.HasPrefix(line, "error: ") && !strings.HasPrefix(line, "warning: ") && !strings.HasPrefix(line, "waiting for "):
					t.Errorf("a line that is neither error, warning nor hint: %s", line)
				}
			}
			if code != c.status || out.Len() > 0 {
				t.Errorf("status %d, want %d; output %q", code, c.status, out.String())
			}
			if !strings.Contains(text, what) {
				t.Errorf("the error does not say %q:\n%s", what, text)
			}
			if !strings.Contains(strings.Join(hints, ""), do) || len(hints) == 0 {
				t.Errorf("no hint says %q:\n%s", do, text)
			}
			if word := cmp.Or(inside.FindString(strings.ReplaceAll(text, b.dir, "DIR")), regexp.MustCompile("Usage:").FindString(text)); word != "" {
				t.Errorf("the error holds %q:\n%s", word, text)
			}
		})
	}
}

// Whatever is named of a store, a run or a study: that there is no store, or no such thing, is said with the place and with what there is; nothing is made.
func TestMistakes_namesOfAStoreAreSaidWithWhatThereIs(t *testing.T) {
	b := newBench(t)
	b.store(b.path("data"))
	store, err := artifact.NewFiles(b.path("data/store"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"trial", "another"} {
		if _, err := artifact.PutJSON(t.Context(), store, record.StudyLayout{Study: name}.File(), record.Study{Study: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(b.path("new/store"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.path("bare"), 0o750); err != nil {
		t.Fatal(err)
	}
	tree := func() string {
		var out strings.Builder
		if err := filepath.WalkDir(b.dir, func(path string, _ fs.DirEntry, err error) error { out.WriteString(path + "\n"); return err }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	before := tree()
	for command, kind := range map[string]string{
		"report nope --out=DIR/r.html":                 "run",
		"ledger nope":                                  "run",
		"trajectory show nope --group=1":               "run",
		"trajectory export nope --group=1 --out=DIR/t": "run",
		"metrics export nope --format=csv --out=DIR/c": "run",
		"study report nope --out=DIR/o":                "study",
		"study show --of=nope":                         "study",
	} {
		there := map[string]string{"run": "r", "study": "another, trial"}[kind]
		for data, want := range map[string]string{
			"nowhere": "there is no artifact store at DIR/nowhere/store",
			"bare":    "there is no artifact store at DIR/bare/store",
			"file":    "there is no artifact store at DIR/file/store",
			"new":     fmt.Sprintf(`no %s "nope" in DIR/new/store; there is none`, kind),
			"data":    fmt.Sprintf(`no %s "nope" in DIR/data/store; there is %s`, kind, there),
		} {
			text, code := b.steady(strings.Fields(command + " --data=DIR/" + data)...)
			text = strings.ReplaceAll(text, b.dir, "DIR")
			if code != exitUsage || !strings.Contains(text, want) || !strings.Contains(text, "try: ") || inside.MatchString(text) {
				t.Errorf("%s in %s: status %d, want %q\n%s", command, data, code, want, text)
			}
		}
	}
	if after := tree(); after != before {
		t.Errorf("made or removed:\n%s\nbefore:\n%s", after, before)
	}
}

// Whoever gets a fault for what they typed gets a hint: every fault of kind Invalid or NotFound that this package makes has one, but for numbers, whose
// message says what is allowed.
func TestMistakes_everyOneHasAHint(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range goFiles(t) {
		if filepath.Base(filepath.Dir(name)) != "steady" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		hinted := map[ast.Expr]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fun, ok := call.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "WithHint" {
				hinted[fun.X] = true // met before the call that it is about
			}
			kind, text, ok := faultOf(call)
			if !ok || kind != "Invalid" && kind != "NotFound" {
				return true
			}
			if seen++; !hinted[call] && !strings.Contains(text, "want at least") {
				t.Errorf("%s: %q has no hint", filepath.Base(name), text)
			}
			return true
		})
	}
	if seen < 40 {
		t.Errorf("only %d faults found", seen)
	}
}

// On a terminal the words "error:" and "try:" have a colour, unless NO_COLOR or TERM=dumb forbid it; elsewhere no byte of a control sequence is printed.
func TestErrors_haveColoursOnATerminalOnly(t *testing.T) {
	for _, c := range []struct {
		term, noColor string
		terminal      bool
		want          bool
	}{
		{"xterm", "", true, true},
		{"xterm", "1", true, false},
		{"dumb", "", true, false},
		{"xterm", "", false, false},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		for _, args := range [][]string{{"nope"}, {"ledger", "r", "--data", filepath.Join(t.TempDir(), "x")}} {
			var text string
			if c.terminal {
				master, slave := testutil.TerminalPair(t)
				if code := run(args, slave, slave); code != exitUsage {
					t.Errorf("%v: status %d", args, code)
				}
				buf := make([]byte, 4096) // a terminal gives what is there
				n, err := master.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				text = string(buf[:n])
			} else {
				file, err := os.Create(filepath.Join(t.TempDir(), "out"))
				if err != nil {
					t.Fatal(err)
				}
				run(args, file, file)
				data, err := os.ReadFile(file.Name())
				if err != nil || file.Close() != nil {
					t.Fatal(err)
				}
				text = string(data)
			}
			if got := strings.Contains(text, "\x1b[31merror:\x1b[0m"); got != c.want || !c.want && strings.ContainsRune(text, '\x1b') || !strings.Contains(text, "error:") {
				t.Errorf("%+v: %v prints %q", c, args, text)
			}
		}
	}
}

// A run is redrawn in place, with a colour for a state, only on a terminal that can do it.
func TestNewDisplay_followsTheTerminal(t *testing.T) {
	for _, c := range []struct{ term, noColor, want string }{
		{"xterm", "", "r  training  \x1b[33m[paused]\x1b[0m\r\n"},
		{"xterm", "1", "r  training  [paused]\r\n"},
		{"dumb", "", "Z r training (paused)\r\n"},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		master, slave := testutil.TerminalPair(t)
		newDisplay(slave).Update(ui.State{Run: "r", Phase: "training", Paused: true})
		buf := make([]byte, 4096)
		n, err := master.Read(buf)
		if err != nil || !strings.HasSuffix(string(buf[:n]), c.want) {
			t.Errorf("%+v: %q, %v", c, buf[:n], err)
		}
	}
}
