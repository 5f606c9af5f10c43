package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// files lists the files of the repository, tracked or new, by their slash path from the root.
func files(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v\n%s", err, stderr(err))
	}
	var list []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name == "" {
			continue
		}
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			list = append(list, name)
		}
	}
	if len(list) < 50 {
		t.Fatalf("only %d files found", len(list))
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// callRule forbids calls in Go files outside of allowed folders.
type callRule struct {
	calls   []string // package.Function, a package is meant by its import path
	allowed []string // path prefixes
	tests   bool     // the rule is about test files; else about all others
	why     string
}

var callRules = []callRule{
	{[]string{"time.Sleep"}, nil, true, "a test waits on a condition, never on the clock"},
	{
		[]string{"fmt.Print", "fmt.Printf", "fmt.Println", "os.Exit", "log.Fatal", "log.Fatalf", "log.Print", "log.Printf", "log.Println"},
		[]string{"internal/engine/cpu/kernel/gen/", "cmd/", "scripts/", "tools/", "internal/sandbox/"},
		false,
		"only commands print and exit (and the sandbox's helper process, which is one)",
	},
	{
		[]string{"os.Getenv", "os.LookupEnv"},
		[]string{"cmd/", "config/", "workers/", "internal/engine/cpu/kernel/"},
		false,
		"only the command line and the configuration read the environment (and the choice of vector instructions, which must hold in any program)",
	},
	{
		[]string{"rand.Int", "rand.IntN", "rand.Float64", "rand.Shuffle", "rand.Perm", "rand.New", "rand.NewPCG", "rand.Uint64"},
		nil, false,
		"randomness comes from internal/rng, by counter",
	},
}

// calls returns the calls "package.Function" of a file with their positions.
func calls(t *testing.T, name, text string) map[string][]token.Position {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]token.Position{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil { // a package, not a variable
				key := x.Name + "." + s.Sel.Name
				found[key] = append(found[key], set.Position(s.Pos()))
			}
		}
		return true
	})
	return found
}

func (r callRule) applies(name string) bool {
	return strings.HasSuffix(name, "_test.go") == r.tests &&
		!slices.ContainsFunc(r.allowed, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func TestSource_callsAreWhereTheyBelong(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		found := calls(t, name, read(t, name))
		for _, r := range callRules {
			for _, call := range r.calls {
				if at := found[call]; len(at) > 0 && r.applies(name) {
					t.Errorf("%s calls %s: %s", at[0], call, r.why)
				}
			}
		}
	}
}

func TestSource_aForbiddenCallIsFound(t *testing.T) {
	t.Parallel()
	found := calls(t, "x.go", "package x\nimport (\"fmt\"; \"time\")\nfunc f() { time.Sleep(1); var fmt2 struct{ Println func() }; fmt2.Println(); fmt.Println() }\n")
	for call, want := range map[string]int{"time.Sleep": 1, "fmt.Println": 1, "fmt2.Println": 0} {
		if got := len(found[call]); got != want {
			t.Errorf("%s found %d times, want %d", call, got, want)
		}
	}
	if r := callRules[1]; r.applies("cmd/steady/main.go") || r.applies("internal/rl/x_test.go") || !r.applies("internal/rl/x.go") {
		t.Error("the rule on printing does not apply where it should")
	}
}

// foreign finds what must not be in a file: paths of one machine, hosts of package registries. The parts are
// joined here so that this file does not hold them.
var foreign = regexp.MustCompile(strings.Join([]string{
	`(^|[\s"'=(:])/` + `(work|root|farm)/`, `/home/` + `[a-z]`, `bash_` + `jobs`,
	`pypi\.` + `org`, `pythonhosted\.` + `org`, `proxy\.golang\.` + `org`, `sum\.golang\.` + `org`, `registry\.npmjs\.` + `org`, `deb\.debian\.` + `org`,
}, "|"))

// homes are folders in whose files a home directory is the subject.
var homes = []string{"internal/sandbox/", "internal/judge/", "docker/"}

func TestSource_noPathsOfOneMachine(t *testing.T) {
	t.Parallel()
	for _, name := range files(t) {
		if strings.HasSuffix(name, "go.sum") || slices.ContainsFunc(homes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		text := read(t, name)
		if strings.ContainsRune(text[:min(len(text), 8000)], 0) { // binary
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			if m := foreign.FindString(line); m != "" {
				t.Errorf("%s:%d: %q belongs to one machine or names a registry", name, number, strings.TrimSpace(m))
			}
		}
	}
}

func TestSource_aForeignPathIsFound(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"see " + "/wo" + "rk/main/x": true, `"` + "/ro" + `ot/go"`: true, "cd " + "/ho" + "me/ann": true, "https://py" + "pi.org/simple": true,
		"a/work/b": false, "rework/x": false, "the work/life": false, "golang.org/x/sys": false,
	} {
		if got := foreign.MatchString(line); got != want {
			t.Errorf("%q: found = %v, want %v", line, got, want)
		}
	}
}

// link is a Markdown link or image; code spans are removed before.
var (
	link = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// brokenLinks returns the relative links of a Markdown text whose target exists says no to.
func brokenLinks(name, text string, exists func(string) bool) []string {
	var broken []string
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if !exists(filepath.Join(filepath.Dir(name), target)) {
			broken = append(broken, m[1])
		}
	}
	return broken
}

func TestSource_relativeLinksLead(t *testing.T) {
	t.Parallel()
	pages := 0
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		pages++
		exists := func(p string) bool { _, err := os.Stat(filepath.Join(root, p)); return err == nil }
		for _, target := range brokenLinks(name, read(t, name), exists) {
			t.Errorf("%s links to %s, which does not exist", name, target)
		}
	}
	if pages == 0 {
		t.Error("no Markdown page found")
	}
}

func TestSource_aBrokenLinkIsFound(t *testing.T) {
	t.Parallel()
	text := "[a](good.md) [b](bad.md#x \"title\") ![c](sub/p.png) [d](https://x/y) [e](#here) `[f](code.md)`\n```\n[g](block.md)\n```\n"
	exists := func(p string) bool { return p == "docs/good.md" }
	got := brokenLinks("docs/x.md", text, exists)
	if want := []string{"bad.md#x", "sub/p.png"}; !slices.Equal(got, want) {
		t.Errorf("broken links = %q, want %q", got, want)
	}
}
