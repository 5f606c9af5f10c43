package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/testutil"
)

// offered returns the words that are offered for a line; the cursor is at its end.
func offered(t *testing.T, line string) []string {
	t.Helper()
	words := strings.Split(line, " ")
	code, out, errOut := steady(t, append([]string{completeCommand}, words...)...)
	if code != exitDone || errOut != "" {
		t.Errorf("%q: status %d, %s", line, code, errOut)
	}
	var got []string
	for l := range strings.Lines(out) {
		word, _, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		if !ok {
			t.Errorf("%q: a line without a tab: %q", line, l)
		}
		got = append(got, word)
	}
	return got
}

// runs makes a store with runs and lineages, and names that are none.
func runs(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	for _, dir := range []string{"alpha/l0", "alpha/l1", "alpine/l0", "beta/l0", ".hidden/l0"} {
		if err := os.MkdirAll(filepath.Join(data, "store", "runs", dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func TestComplete_offersWhatMayStandThere(t *testing.T) {
	t.Parallel()
	data := runs(t)
	var recipes []string
	for _, r := range config.Recipes() {
		recipes = append(recipes, r.Name)
	}
	for line, want := range map[string][]string{
		"dem":                                   {"demo"},
		"config ":                               {"print", "validate", "recipes"},
		"config p":                              {"print"},
		"config print --rec":                    {"--recipe"},
		"config print --recipe ":                recipes,
		"config print --recipe=sc-taco-":        {"--recipe=sc-taco-1gpu", "--recipe=sc-taco-2gpu"},
		"config print --set run.st":             {"run.steps="},
		"config print --set=run.st":             {"--set=run.st" + "eps="},
		"dev --engine ":                         {"cpu", "ref", "cuda"},
		"dev --engine=c":                        {"--engine=cpu", "--engine=cuda"},
		"dev --log-level w":                     {"warn"},
		"dev --data ":                           {askDirs},
		"config print -f ":                      {askFiles},
		"judge --cases ":                        {askFiles},
		"tokenize --tokenizer ":                 {askDirs},
		"dataset problems --format ":            {"taco", "deepcoder", "lcb", "jsonl"},
		"dataset problems --format taco ":       {askFiles},
		"dataset problems a.parquet ":           {askFiles},
		"report --data " + data + " ":           {"alpha", "alpine", "beta"},
		"report --data=" + data + " alp":        {"alpha", "alpine"},
		"ledger --data " + data + " beta ":      nil,
		"report --data " + data + " --lineage ": {"l0", "l1"},
		"trajectory show --data=" + data + " b": {"beta"},
		"completion ":                           {"bash", "zsh", "fish"},
		"worker --roles ":                       {"all", "control", "data", "rollout", "judge", "trainer", "standby"},
		"demo --port ":                          nil,
		"demo -- --":                            nil,
		"nope --":                               {"--help"},
		"report --data /nonexistent ":           nil,
		"eval --data ":                          {"taco", "lcb", "deepcoder", "jsonl"},
		"eval com":                              {"compare"},
		"version ":                              nil,
		"demo --fresh --ke":                     {"--keep"},
	} {
		got := offered(t, line)
		if !slices.Equal(got, want) {
			t.Errorf("%q: offered %q, want %q", line, got, want)
		}
	}
}

// Every command, flag and value of an enumeration of the grammar is offered at its place.
func TestComplete_coversTheGrammar(t *testing.T) {
	t.Parallel()
	_, parser := lenient(t)
	var walk func(n *kong.Node, line string)
	walk = func(n *kong.Node, line string) {
		for _, child := range n.Children {
			if child.Hidden {
				continue
			}
			if !slices.Contains(offered(t, line), child.Name) {
				t.Errorf("%q does not offer %s", line, child.Name)
			}
			walk(child, line+child.Name+" ")
		}
		if len(n.Children) > 0 {
			return
		}
		have := offered(t, line+"-")
		for _, f := range n.Flags {
			if f.Hidden {
				continue
			}
			if !slices.Contains(have, "--"+f.Name) {
				t.Errorf("%q does not offer --%s", line, f.Name)
			}
			if f.Enum == "" {
				continue
			}
			values := offered(t, line+"--"+f.Name+" ")
			for _, v := range f.EnumSlice() {
				if v != "" && !slices.Contains(values, v) {
					t.Errorf("%q --%s does not offer %q, but %q", line, f.Name, v, values)
				}
			}
		}
	}
	walk(parser.Model.Node, "")
}

// shellWith returns the path of a shell and a folder whose program steady is this one; it skips where the shell is not installed.
func shellWith(t *testing.T, shell string) (path, bin string) {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%s is not installed", shell)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin = t.TempDir()
	testutil.WriteScript(t, bin, "steady", fmt.Sprintf("%s=1 exec '%s' \"$@\"", asSteady, self))
	return path, bin
}

// script writes the completion script of a shell.
func script(t *testing.T, shell string) string {
	t.Helper()
	code, text, errOut := steady(t, "completion", shell)
	if code != exitDone || errOut != "" {
		t.Fatalf("completion %s: status %d: %s", shell, code, errOut)
	}
	path := filepath.Join(t.TempDir(), "steady."+shell)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func output(t *testing.T, bin, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// Each shell takes its script without a complaint.
func TestCompletion_shellsReadTheirScripts(t *testing.T) {
	t.Parallel()
	for shell, flag := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, bin := shellWith(t, shell)
			if out := output(t, bin, t.TempDir(), path, flag, script(t, shell)); out != "" {
				t.Errorf("%s says %s", shell, out)
			}
		})
	}
}

// In bash, real completions of a line: commands, flags, values behind a blank and behind "=", runs of a store, files.
func TestCompletion_bashCompletesALine(t *testing.T) {
	t.Parallel()
	bash, bin := shellWith(t, "bash")
	path, data, dir := script(t, "bash"), runs(t), t.TempDir()
	for _, name := range []string{"one.yaml", "other.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "odir"), 0o750); err != nil {
		t.Fatal(err)
	}
	// As readline does it: the function that complete names is called with the line, and leaves COMPREPLY.
	const ask = `source "$1"
f=$(complete -p steady); [[ $f == "complete -F _steady steady" ]] || { echo "$f"; exit 1; }
complete -p steady-cuda >/dev/null
COMP_LINE=$2 COMP_POINT=${#2}
_steady
printf '%s\n' "${COMPREPLY[@]}"`
	for line, want := range map[string]string{
		"steady conf":                             "config",
		"steady config print --recipe sc-taco-1":  "sc-taco-1gpu",
		"steady config print --recipe=sc-taco-1":  "sc-taco-1gpu",
		"steady config print --set run.val":       "run.validate_every=",
		"steady dev --engine c":                   "cpu cuda",
		"steady report --data " + data + " al":    "alpha alpine",
		"steady report --data=" + data + " ":      "alpha alpine beta",
		"steady  report   --data " + data + " be": "beta",
		"steady config print -f o":                "odir one.yaml other.yaml",
		"steady config print --file=o":            "odir one.yaml other.yaml",
		"steady dev --data o":                     "odir",
		"steady nonsense nonsense ":               "",
	} {
		got := strings.Fields(output(t, bin, dir, bash, "-c", ask, "bash", path, line))
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// In fish, by its own means.
func TestCompletion_fishCompletesALine(t *testing.T) {
	t.Parallel()
	fish, bin := shellWith(t, "fish")
	path, data := script(t, "fish"), runs(t)
	for line, want := range map[string]string{
		"steady conf":                            "config",
		"steady config print --recipe sc-taco-1": "sc-taco-1gpu",
		"steady report --data " + data + " al":   "alpha alpine",
	} {
		out := output(t, bin, t.TempDir(), fish, "--no-config", "-c", "source "+path+"; complete -C "+"'"+line+"'")
		var got []string
		for l := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// In zsh, the function runs and offers words to _describe, which the test stands in for: a real completion needs a terminal.
func TestCompletion_zshOffersWords(t *testing.T) {
	t.Parallel()
	zsh, bin := shellWith(t, "zsh")
	path, data := script(t, "zsh"), runs(t)
	const ask = `compdef() { :; }
_describe() { print -l -- "${(@P)2}"; }
_files() { print -- files "$@"; }
compset() { :; }
source "$1"
words=("${(@s: :)2}") CURRENT=${#words} PREFIX=${words[-1]}
_steady || true`
	for line, want := range map[string]string{
		"steady conf":                            "config:Print and check configurations.",
		"steady config print --recipe sc-taco-1": "sc-taco-1gpu:sc-taco on one GPU that trains and generates in turn (H200)",
		"steady report --data " + data + " al":   "alpha\nalpine",
		"steady dev --data ":                     "files -/",
		"steady config print -f ":                "files",
		"steady nonsense nonsense ":              "",
	} {
		if got := strings.TrimSpace(output(t, bin, t.TempDir(), zsh, "-f", "-c", ask, "zsh", path, line)); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
