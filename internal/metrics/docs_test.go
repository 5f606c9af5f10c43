package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/scalars"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/metrics.md")

// The tables of docs/metrics.md are what is registered, and the columns of `steady metrics export`. One test for both: they are parts
// of one file.
func TestDocs_listEveryMetricAndColumn(t *testing.T) {
	t.Parallel()
	const page = "../../docs/metrics.md"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, want := range map[string]string{"metrics": metricTable(), "columns": columnTable()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		table, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no table between %q and %q", page, begin, end)
		}
		if table != want && !*update {
			t.Errorf("%s: the table of %s is another; `go test ./internal/metrics -run Docs -update` rewrites it", page, name)
		}
		text = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func metricTable() string {
	var b strings.Builder
	b.WriteString("| name | type | labels | role | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, d := range New("v").Definitions() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, quoted(d.Labels...), d.Role, cell(d.Help))
	}
	return b.String()
}

func columnTable() string {
	var b strings.Builder
	b.WriteString("| column | type | curve | meaning |\n| --- | --- | --- | --- |\n")
	for _, c := range scalars.Columns() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name, c.Type, quoted(c.Tag), cell(c.Doc))
	}
	return b.String()
}

func quoted(words ...string) string {
	if text := strings.Join(words, "`, `"); text != "" {
		return "`" + text + "`"
	}
	return ""
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
