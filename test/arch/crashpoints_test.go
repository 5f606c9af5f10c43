package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/crashpoint"
)

// crashpoints returns the names that a file gives to crashpoint.Here; an argument that is no literal comes as "".
func crashpoints(t *testing.T, name, text string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Here" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); !ok || x.Name != "crashpoint" {
			return true
		}
		point := ""
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			point, _ = strconv.Unquote(lit.Value) // a string, else the file would not compile
		}
		found = append(found, point)
		return true
	})
	return found
}

// A point that nobody visits, one that is not on the list, or one at two places could not be relied on.
func TestCrashpoints_listAndCallsAgree(t *testing.T) {
	t.Parallel()
	places := map[string][]string{}
	for _, name := range files(t) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			for _, point := range crashpoints(t, name, read(t, name)) {
				places[point] = append(places[point], name)
			}
		}
	}
	for _, point := range crashpoint.All() {
		if n := len(places[point]); n != 1 {
			t.Errorf("%s is called at %d places %v, want one", point, n, places[point])
		}
		delete(places, point)
	}
	for _, point := range slices.Sorted(maps.Keys(places)) {
		t.Errorf("%q in %v is not on the list of internal/crashpoint", point, places[point])
	}
}

func TestCrashpoints_aCallIsFound(t *testing.T) {
	t.Parallel()
	got := crashpoints(t, "x.go", "package x\nfunc f(n string) { crashpoint.Here(\"a.b\"); other.Here(\"c\"); go func() { crashpoint.Here(n) }() }\n")
	if want := []string{"a.b", ""}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
