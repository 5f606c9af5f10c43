package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/testutil/page"
)

// leaves lists the commands that do something, as the grammar has them.
func leaves(t *testing.T) []*kong.Node {
	t.Helper()
	_, parser := lenient(t)
	all := parser.Model.Leaves(true)
	if len(all) < 30 {
		t.Fatalf("only %d commands found", len(all))
	}
	return all
}

// examples are the indented lines of a help text that begin with the program's name.
func examples(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if example, ok := strings.CutPrefix(line, "  "); ok && regexp.MustCompile(`^(source <\(|)steady(-cuda)? `).MatchString(example) {
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(example), "source <("), ")"))
		}
	}
	return out
}

var (
	saysReads  = regexp.MustCompile(`(?i)\breads?\b|\bread\b`)
	saysWrites = regexp.MustCompile(`(?i)\bwrites?\b|\bwritten\b|\bresult\b|\bprints?\b|\bpage\b`)
)

// Every command teaches: a text of its own, an example that the program accepts and that is of this command, what it reads and writes, its exit status.
// A new command is found by the walk.
func TestHelp_teachesEveryCommand(t *testing.T) {
	t.Parallel()
	for _, leaf := range leaves(t) {
		name := strings.TrimPrefix(leaf.FullPath(), "steady ")
		text := leaf.Detail
		if text == "" {
			t.Errorf("%s has no long help: give it a method Help, as in cmd/steady/help.go", name)
			continue
		}
		own := 0
		for _, example := range examples(text) {
			list, err := page.Commands(example)
			if err != nil || len(list) != 1 {
				t.Errorf("%s: example %q: %v", name, example, err)
				continue
			}
			if err := checkSteady(t, list[0].Words[1:], false); err != nil {
				t.Errorf("%s: example %q: %v", name, example, err)
			}
			_, parser := lenient(t)
			if parsed, err := parser.Parse(list[0].Words[1:]); err == nil && parsed.Selected() != nil && parsed.Selected().FullPath() == leaf.FullPath() {
				own++
			}
		}
		if own == 0 {
			t.Errorf("%s: no example of this command (indented by two, beginning with steady)", name)
		}
		if !strings.Contains(text, "Exit status: 0") {
			t.Errorf("%s: the help does not say the exit status", name)
		}
		if !saysReads.MatchString(text) || !saysWrites.MatchString(text) {
			t.Errorf("%s: the help does not say what is read and written", name)
		}
		for _, m := range regexp.MustCompile(`docs/[\w-]+\.md`).FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(testutil.Root(), m)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The help of every command can be printed, has the text and its flags, and ends with status 0.
func TestHelp_printsForEveryCommand(t *testing.T) {
	t.Parallel()
	for _, leaf := range leaves(t) {
		words := strings.Fields(leaf.FullPath())[1:]
		var out, errOut bytes.Buffer
		code := run(append(words, "--help"), &out, &errOut)
		got := out.String()
		if code != exitDone || errOut.Len() > 0 || !strings.Contains(got, "Usage: steady ") || !strings.Contains(got, "Exit status: 0") {
			t.Errorf("%v --help: status %d: %s%s", words, code, got, errOut.String())
		}
		for _, f := range leaf.Flags {
			if !f.Hidden && (!strings.Contains(got, "--"+f.Name) && !strings.Contains(got, "--[no-]"+f.Name) || f.Help == "") {
				t.Errorf("%v --help does not explain --%s", words, f.Name)
			}
		}
		for _, example := range examples(leaf.Detail) {
			if !strings.Contains(got, "  "+example) && !strings.Contains(got, "("+example) { // not broken over lines
				t.Errorf("%v --help does not hold the example %q", words, example)
			}
		}
	}
}

// exitConstants are the constants exit... of the program, by name.
func exitConstants(t *testing.T) map[string]int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "exit") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.INT {
			out[spec.Names[0].Name], _ = strconv.Atoi(lit.Value)
		}
		return true
	})
	return out
}

// The table of docs/cli.md, what --help says and the constants are the same.
func TestExitCodes_areDocumented(t *testing.T) {
	t.Parallel()
	meanings := exitMeanings()
	var codes []int
	for _, code := range exitConstants(t) {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	if len(codes) != len(meanings) || codes[len(codes)-1] != len(meanings)-1 {
		t.Fatalf("the constants are %v, %d meanings", codes, len(meanings))
	}
	text, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(meanings) {
		t.Fatalf("the table has %d rows, want %d", len(rows), len(meanings))
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"--help"}, &out, &errOut); code != exitDone {
		t.Fatalf("--help: status %d", code)
	}
	help := strings.Join(strings.Fields(out.String()), " ")
	for code, meaning := range meanings {
		if rows[code][1] != strconv.Itoa(code) || rows[code][2] != meaning || meaning == "" {
			t.Errorf("row %d of the table says %s, %q; the program %q", code, rows[code][1], rows[code][2], meaning)
		}
		if !strings.Contains(help, strconv.Itoa(code)+" "+strings.ReplaceAll(meaning, "; ", ", ")) {
			t.Errorf("steady --help does not say %d %s", code, meaning)
		}
	}
}

// Hints in messages name commands that exist: a hint that cannot be followed is worse than none.
func TestHints_nameCommandsThatExist(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	seen := 0
	for _, lit := range literals(t) {
		for _, m := range regexp.MustCompile("`((?:steady|temporal|make|bin/[a-z-]+)[^`]*)`").FindAllStringSubmatch(lit.text, -1) {
			list, err := page.Commands(regexp.MustCompile(`%[a-z.0-9]+`).ReplaceAllString(m[1], "X"))
			if err != nil || len(list) == 0 {
				continue
			}
			if known, err := c.check(list[0].Words, true); err != nil {
				t.Errorf("%s: `%s`: %v", lit.file, m[1], err)
			} else if known {
				seen++
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d commands in messages found", seen)
	}
}

// literal is a text of the program's source.
type literal struct{ file, text string }

// literals are all string literals of the module's code, tests aside; texts that are put together with + are one.
func literals(t *testing.T) []literal {
	t.Helper()
	var out []literal
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := constant(n); ok {
				out = append(out, literal{path, text})
				return false
			}
			return true
		})
	}
	return out
}

// goFiles are the files of the module's code, tests aside.
func goFiles(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, folder := range []string{"cmd", "config", "workflows", "activities", "workers", "internal"} {
		err := filepath.WalkDir(filepath.Join(testutil.Root(), folder), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// constant is the text of a literal, or of a sum of literals.
func constant(n ast.Node) (string, bool) {
	switch e := n.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, ok := constant(e.X)
		right, also := constant(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
