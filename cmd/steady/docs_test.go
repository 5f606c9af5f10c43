package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/testutil/page"
)

// placeholder is a word of a page that stands for what a reader puts there.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// lenient is the grammar for what pages say: files need not exist, and a placeholder stands for any number.
func lenient(t *testing.T) (*cli, *kong.Kong) {
	t.Helper()
	text := kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		if target.Kind() == reflect.Slice {
			return kong.NewRegistry().RegisterDefaults().ForType(target.Type()).Decode(ctx, target)
		}
		return ctx.Scan.PopValueInto("string", target.Addr().Interface())
	})
	number := func(kind reflect.Kind) kong.Mapper {
		ordinary := kong.NewRegistry().RegisterDefaults().ForType(map[reflect.Kind]reflect.Type{
			reflect.Int: reflect.TypeFor[int](), reflect.Uint64: reflect.TypeFor[uint64](), reflect.Float64: reflect.TypeFor[float64](),
		}[kind])
		return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			if placeholder.MatchString(ctx.Scan.Peek().String()) {
				ctx.Scan.Pop()
				target.Set(reflect.ValueOf(1).Convert(target.Type()))
				return nil
			}
			return ordinary.Decode(ctx, target)
		})
	}
	var c cli
	parser, err := grammar(&c, kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}),
		kong.NamedMapper("existingfile", text), kong.NamedMapper("existingdir", text), kong.NamedMapper("path", text),
		kong.KindMapper(reflect.Int, number(reflect.Int)), kong.KindMapper(reflect.Uint64, number(reflect.Uint64)), kong.KindMapper(reflect.Float64, number(reflect.Float64)))
	if err != nil {
		t.Fatal(err)
	}
	return &c, parser
}

// unfinished are what kong says of a command that ends too early, as a mention in a sentence may.
var unfinished = regexp.MustCompile(`^(missing flags: |expected )|got "EOL"`)

// checkSteady parses a command of steady with the real grammar, and loads the keys that it sets. A mention may be unfinished.
func checkSteady(t *testing.T, words []string, mention bool) error {
	t.Helper()
	mention = mention || slices.Contains(words, "--help") // which ends before anything is missed
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "--help" })
	if len(words) == 0 || mention && placeholder.MatchString(words[0]) || len(words) == 1 && words[0] == "--version" {
		return nil
	}
	_, parser := lenient(t)
	parsed, err := parser.Parse(words)
	if err != nil {
		if mention && unfinished.MatchString(err.Error()) {
			return nil
		}
		return err
	}
	var load config.Options
	for _, p := range parsed.Path {
		switch f := p.Flag; {
		case f == nil:
		case f.Name == "recipe":
			load.Recipe, _ = parsed.FlagValue(f).(string)
		case f.PlaceHolder == "KEY=VALUE":
			load.Sets, _ = parsed.FlagValue(f).([]string)
		}
	}
	_, _, err = config.Load(load)
	return err
}

// temporalFlags are the commands of temporal that pages may name, with their flags. TestPages_temporalHasTheseFlags in test/e2e compares them with the
// real program.
var temporalFlags = page.TemporalFlags()

// checkTemporal checks a command of the Temporal command line: command, flags, and the names that this program gives to workflows, queues and messages.
func checkTemporal(words []string, mention bool) error {
	n := 0
	for n < len(words) && !strings.HasPrefix(words[n], "-") {
		n++
	}
	name := strings.Join(words[:n], " ")
	flags, ok := temporalFlags[name]
	if mention && name == "" {
		return nil
	}
	if !ok {
		return fmt.Errorf("temporal has no command %q that is known here", name)
	}
	value := map[string]string{}
	for i := n; i < len(words); i += 2 {
		flag, v, inline := strings.Cut(words[i], "=")
		if inline {
			i--
		} else if i+1 < len(words) {
			v = words[i+1]
		}
		if !slices.Contains(flags, flag) || v == "" {
			return fmt.Errorf("temporal %s: flag %s is unknown or has no value", name, words[max(i, n)])
		}
		value[flag] = v
	}
	known := map[string][]string{
		"workflow update execute --name": {
			contract.UpdatePause, contract.UpdateResume, contract.UpdateStop, contract.UpdateRate, contract.UpdateThreshold, contract.UpdatePrefill, contract.UpdateRollback,
		},
		"workflow signal --name": {
			contract.UpdatePause, contract.UpdateResume, contract.UpdateStop, contract.UpdateRate, contract.UpdateThreshold, contract.UpdatePrefill,
		},
		"workflow query --name":       {contract.QueryProgress},
		"workflow start --type":       {contract.TrainRun, contract.Study},
		"workflow start --task-queue": {contract.QueueControl},
	}
	for key, allowed := range known {
		command, flag, _ := strings.Cut(key, " --")
		v, given := value["--"+flag]
		if command != name || mention && !given {
			continue
		}
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("temporal %s: --%s %q, want one of %s", name, flag, v, strings.Join(allowed, ", "))
		}
	}
	if in, given := value["--input"]; given && !json.Valid([]byte(in)) {
		return fmt.Errorf("temporal %s: --input %s is no JSON", name, in)
	}
	return nil
}

var target = regexp.MustCompile(`(?m)^([a-z0-9./-]+):`)

// checkMake wants targets and variables that the Makefile has.
func checkMake(makefile string, words []string) error {
	for _, w := range words {
		name, _, isVariable := strings.Cut(w, "=")
		if isVariable && strings.Contains(makefile, "$("+name+")") {
			continue
		}
		if !slices.ContainsFunc(target.FindAllStringSubmatch(makefile, -1), func(m []string) bool { return m[1] == w }) {
			return fmt.Errorf("make has no target %q", w)
		}
	}
	return nil
}

// checker checks commands of pages.
type checker struct {
	t        *testing.T
	makefile string
}

func newChecker(t *testing.T) checker {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testutil.Root(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	return checker{t, strings.ReplaceAll(string(text), "$(BIN)", "bin")}
}

// check reports what is wrong with a command; known is false for a program that is not ours.
func (c checker) check(words []string, mention bool) (known bool, err error) {
	switch strings.TrimPrefix(words[0], "bin/") {
	case "steady", "steady-cuda":
		return true, checkSteady(c.t, words[1:], mention)
	case "temporal":
		return true, checkTemporal(words[1:], mention)
	case "make":
		return true, checkMake(c.makefile, words[1:])
	}
	return false, nil
}

func pages(t *testing.T) []page.Page {
	t.Helper()
	all, err := page.All(testutil.Root())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// others are programs that blocks may use beside ours.
var others = []string{"cat", "cd", "go", "git", "kill", "ls", "source", "scripts/qwen3-tokenizer", "docker", "diff", "nvidia-smi", "python3", "cp", "grep", "export", "./cuda.test"}

// Every command of every page is one that the programs accept: a renamed flag, a removed target or an unknown key is found here.
func TestPages_everyCommandIsAccepted(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	commands := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			if b.Lang != "bash" {
				continue
			}
			list, err := page.Commands(b.Text)
			if err != nil {
				t.Errorf("%s: %v", b.Where(), err)
			}
			for _, cmd := range list {
				known, err := c.check(cmd.Words, false)
				if !known && !slices.Contains(others, cmd.Words[0]) {
					err = fmt.Errorf("%q is a program that no page may use", cmd.Words[0])
				}
				if err != nil {
					t.Errorf("%s:%d: %s: %v", b.Page, b.Line+cmd.Line, strings.Join(cmd.Words, " "), err)
				}
				commands++
			}
		}
		for _, s := range p.Spans {
			list, err := page.Commands(s.Text)
			if err != nil {
				continue // a span with an apostrophe is no command
			}
			for _, cmd := range list[:min(1, len(list))] {
				known, err := c.check(cmd.Words, true)
				if err != nil {
					t.Errorf("%s: `%s`: %v", s.Where(), s.Text, err)
				}
				if known {
					commands++
				}
			}
		}
	}
	if commands < 150 {
		t.Errorf("only %d commands found", commands)
	}
}

func TestPages_aWrongCommandIsFound(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	for text, want := range map[string]string{
		"steady nope":                                                 "unexpected argument nope",
		"steady demo --stepz 3":                                       "unknown flag --stepz",
		"steady dev --engine quick":                                   "must be one of",
		"steady report":                                               `expected "<run>"`,
		"steady config print --set run.stepz=3":                       "unknown key",
		"steady config print --recipe nope":                           "want one of",
		"steady demo --port x":                                        "--port",
		"steady eval --model D --data taco --set S --assign x":        "x",
		"make nonsense":                                               "no target",
		"make chaos FLAWS=3":                                          "no target",
		"temporal workflow dance":                                     "no command",
		"temporal workflow cancel --workflow-id r --now x":            "--now",
		"temporal workflow update execute --workflow-id r --name sit": `--name "sit"`,
		"temporal workflow start --type Trainrun --task-queue steady --workflow-id r": `--type "Trainrun"`,
		"temporal workflow update execute --workflow-id r --name pause --input {x":    "no JSON",
	} {
		known, err := c.check(strings.Fields(text), false)
		if !known || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"steady report", "steady", "steady COMMAND --help", "steady trajectory show RUN --group N", "temporal workflow unpause", "make chaos FAULTS=3"} {
		if _, err := c.check(strings.Fields(text), true); err != nil {
			t.Errorf("mention %s: %v", text, err)
		}
	}
}

// Every block of commands says whether a test runs it and, if not, why; the reasons are a closed list.
func TestPages_everyBlockHasAMark(t *testing.T) {
	t.Parallel()
	run := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			switch {
			case b.Lang == "sh" || b.Lang == "" || b.Lang == "console":
				t.Errorf("%s: a fence without a language, or %q: commands are bash, output is text", b.Where(), b.Lang)
			case b.Lang != "bash" && b.Mark != page.None:
				t.Errorf("%s: a block of %s has the mark %q", b.Where(), b.Lang, b.Mark)
			case b.Lang == "bash" && b.Mark == page.None:
				t.Errorf("%s: no mark: want <!-- run -->, <!-- run: server --> or <!-- not run: REASON -->", b.Where())
			case b.Mark == page.NotRun && !slices.Contains(page.Reasons, b.Reason):
				t.Errorf("%s: not run: %q is none of %q", b.Where(), b.Reason, page.Reasons)
			case b.Mark == page.Run || b.Mark == page.Server:
				run++
			}
		}
	}
	if run < 10 {
		t.Errorf("only %d blocks are run", run)
	}
}

// The other blocks are what they say: JSON, a configuration, a piece of a file.
func TestPages_blocksAreTrue(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			switch b.Lang {
			case "json":
				for line := range strings.Lines(b.Text) {
					if !json.Valid([]byte(line)) && !json.Valid([]byte(b.Text)) {
						t.Errorf("%s: no JSON: %s", b.Where(), line)
					}
				}
			case "yaml":
				file := filepath.Join(t.TempDir(), "x.yaml")
				if err := os.WriteFile(file, []byte(b.Text), 0o600); err != nil {
					t.Fatal(err)
				}
				_, _, err := config.Load(config.Options{Files: []string{file}})
				if strings.Contains(b.Text, "\narms:") {
					_, err = config.LoadStudy(file)
				}
				if err != nil {
					t.Errorf("%s: %v", b.Where(), err)
				}
			case "go":
				if b.From == "" {
					t.Errorf("%s: Go without <!-- from: FILE -->", b.Where())
					continue
				}
				text, err := os.ReadFile(filepath.Join(testutil.Root(), b.From))
				if err != nil || !strings.Contains(string(text), b.Text) {
					t.Errorf("%s: %s does not hold this text (%v)", b.Where(), b.From, err)
				}
			}
		}
	}
}

// Links between pages lead to a heading that is there.
func TestPages_anchorsLead(t *testing.T) {
	t.Parallel()
	anchors := map[string][]string{}
	all := pages(t)
	for _, p := range all {
		anchors[p.Name] = p.Anchors
	}
	seen := 0
	for _, p := range all {
		for _, l := range p.Links {
			file, fragment, ok := strings.Cut(l.Text, "#")
			if !ok || strings.Contains(l.Text, "://") {
				continue
			}
			to := p.Name
			if file != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(p.Name), file))
			}
			if seen++; !slices.Contains(anchors[to], fragment) {
				t.Errorf("%s links to %s, which is no heading there", l.Where(), l.Text)
			}
		}
	}
	if seen == 0 {
		t.Error("no link to a heading found")
	}
}

var repositoryPath = regexp.MustCompile(`^(cmd|config|workflows|activities|workers|internal|test|docker|docs|scripts|tools)/[\w./*-]+$`)

// A file that a page names is in the repository.
func TestPages_namedFilesExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range pages(t) {
		for _, s := range p.Spans {
			if !repositoryPath.MatchString(s.Text) || regexp.MustCompile(`[A-Z]{3}|\.\.\.|\.[A-Z]`).MatchString(s.Text) {
				continue
			}
			seen++
			if found, err := filepath.Glob(filepath.Join(testutil.Root(), s.Text)); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", s.Where(), s.Text)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d names of files found", seen)
	}
}

// The blocks with the mark "run" do what they say, in a folder of their own for each page: bin/steady is this program, and the folders of the
// repository are there to be read.
func TestPages_runTheirBlocks(t *testing.T) {
	for _, p := range pages(t) {
		if !slices.ContainsFunc(p.Blocks, func(b page.Block) bool { return b.Mark == page.Run }) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o750); err != nil {
				t.Fatal(err)
			}
			testutil.WriteScript(t, filepath.Join(dir, "bin"), "steady", fmt.Sprintf("%s=1 exec '%s' \"$@\"", asSteady, self))
			page.Mount(t, testutil.Root(), dir)
			for _, b := range p.Blocks {
				if b.Mark != page.Run {
					continue
				}
				cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.Text)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s\n%s", b.Where(), err, b.Text, out)
				}
			}
		})
	}
}

// verb is a place for a value in a format.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[a-zA-Z]`)

// faults are the formats of all faults of the module's code by kind, with "…" for values.
func faults(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, name := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if kind, text, ok := faultOf(call); ok {
					out[kind] = append(out[kind], verb.ReplaceAllString(text, "…"))
				}
			}
			return true
		})
	}
	return out
}

// faultOf reports whether a call is fault.New with a known kind and format, and which.
func faultOf(call *ast.CallExpr) (kind, format string, ok bool) {
	if len(call.Args) < 3 {
		return "", "", false
	}
	fun, isSelector := call.Fun.(*ast.SelectorExpr)
	k, isKind := call.Args[0].(*ast.SelectorExpr)
	format, isText := constant(call.Args[2])
	if !isSelector || !isKind || !isText || fun.Sel.Name != "New" {
		return "", "", false
	}
	x, isFault := k.X.(*ast.Ident)
	return k.Sel.Name, format, isFault && x.Name == "fault"
}

// Each message that docs/faq.md explains is a message of the program, of that kind; no kind is left out; nothing is explained twice.
func TestFAQ_explainsMessagesThatExist(t *testing.T) {
	t.Parallel()
	known := faults(t)
	for _, k := range fault.Kinds() {
		if len(known[string(k)]) == 0 {
			t.Errorf("no fault of kind %s was found in the source", k)
		}
	}
	text, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "faq.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `(\\w+)` \\| ([^|]+) \\| ([^|]+) \\|$").FindAllStringSubmatch(string(text), -1) {
		message, kind := m[1], m[2]
		rows[kind]++
		if seen[message] {
			t.Errorf("%q is explained twice", message)
		}
		seen[message] = true
		if !slices.ContainsFunc(known[kind], func(format string) bool { return strings.Contains(format, message) }) {
			t.Errorf("no fault of kind %s says %q", kind, message)
		}
	}
	for _, k := range fault.Kinds() {
		if rows[string(k)] == 0 {
			t.Errorf("no message of kind %s is explained", k)
		}
		if !strings.Contains(string(text), "\n| `"+string(k)+"` |") {
			t.Errorf("the kind %s is not in the first table", k)
		}
	}
	if lines := strings.Count(string(text), "\n| `") - len(fault.Kinds()); lines != len(seen) {
		t.Errorf("%d rows have a message and a kind, %d could be read", lines, len(seen))
	}
}

// fullyExplained are folders all of whose messages docs/faq.md explains.
var fullyExplained = []string{
	"internal/artifact", "internal/chat", "internal/checkpoint", "internal/devserver", "internal/ledger", "internal/learner", "internal/policy", "internal/sandbox", "internal/transcript",
}

// notForUsers are messages about a mistake in the code that calls, or with nothing to say beside their cause.
var notForUsers = []string{
	"the binary and the database file must be given", "own binary: …", "batch … is of step …, asked for is …", "… holds step …", "… begins with step …, asked for is …",
	"step … is before the first step of …, …", "…: … log-probabilities, recorded were …", "…/… is missing", "…: format … with … files, want 1 or 2 with 3",
	"…: file … is …, want …", "… has no ledger record of step …; the newest before is of step …",
}

// No message of these folders is without its row, so that a new one is not forgotten. Faults of kind Internal have one row for all.
func TestFAQ_leavesNothingOut(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "faq.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `(\\w+)` \\|").FindAllStringSubmatch(string(text), -1)
	used := map[string]bool{}
	for _, name := range goFiles(t) {
		folder, err := filepath.Rel(testutil.Root(), filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(fullyExplained, filepath.ToSlash(folder)) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			kind, format, ok := faultOf(call)
			format = verb.ReplaceAllString(format, "…")
			if !ok || kind == "Internal" || !regexp.MustCompile(`[a-z]{3}`).MatchString(format) {
				return true
			}
			for _, part := range notForUsers {
				if strings.Contains(format, part) {
					used[part] = true
					return true
				}
			}
			if !slices.ContainsFunc(rows, func(m []string) bool { return m[2] == kind && strings.Contains(format, m[1]) }) {
				t.Errorf("%s: docs/faq.md does not explain %q of kind %s", folder, format, kind)
			}
			return true
		})
	}
	for _, part := range notForUsers {
		if !used[part] {
			t.Errorf("%q is no message any more: take it off the list", part)
		}
	}
}

// Every number of the report has its row in docs/understanding-metrics.md.
func TestMetricsPage_explainsEveryNumber(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "understanding-metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
			if rows[name[1]] {
				t.Errorf("%s is explained twice", name[1])
			}
			rows[name[1]] = true
		}
	}
	n := 0
	for _, m := range append(record.Metrics(record.BatchMetrics{}), record.Metrics(record.UpdateMetrics{})...) {
		if n++; !rows[m.Name] {
			t.Errorf("%s (%s) has no row", m.Name, m.Doc)
		}
	}
	if n < 40 {
		t.Errorf("only %d metrics found", n)
	}
}

// A key of the configuration that a page names is one.
func TestPages_namedKeysExist(t *testing.T) {
	t.Parallel()
	var known []string
	sections := map[string]bool{}
	for _, k := range config.Keys() {
		known = append(known, k.Name)
		section, _, nested := strings.Cut(k.Name, ".")
		sections[section] = sections[section] || nested
	}
	seen := 0
	for _, p := range pages(t) {
		for _, s := range p.Spans {
			key, _, _ := strings.Cut(s.Text, "=")
			section, rest, ok := strings.Cut(key, ".")
			if !ok || !sections[section] || strings.HasSuffix(key, ".after") || strings.HasSuffix(key, ".before") || // crash points
				!regexp.MustCompile(`^[a-z_0-9.]+$`).MatchString(rest) || slices.Contains([]string{"json", "yaml", "jsonl", "safetensors", "db", "parquet"}, rest) {
				continue
			}
			if seen++; !slices.ContainsFunc(known, func(k string) bool { return k == key || strings.HasPrefix(k, key+".") }) {
				t.Errorf("%s: there is no key %s", s.Where(), key)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d keys found", seen)
	}
}
