package page_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/testutil/page"
)

const sample = "# A `b` (c), d\n\n<!-- run -->\n```bash\nsteady x\n```\n## Same\ntext `one\ntwo` and [l](x.md#y) `[no](z)`\n\n" +
	"<!-- not run: gpu -->\n```bash\n```\n## Same\n<!-- from: a/b.go -->\n```go\nx\n```\n```text\ny `z`\n```\n<!-- run: server -->\n```bash\n```\n"

func TestParse_findsWhatAPageHolds(t *testing.T) {
	t.Parallel()
	p, err := page.Parse("p.md", sample)
	if err != nil {
		t.Fatal(err)
	}
	want := page.Page{
		Name: "p.md",
		Blocks: []page.Block{
			{Page: "p.md", Lang: "bash", Text: "steady x\n", Line: 4, Mark: page.Run},
			{Page: "p.md", Lang: "bash", Line: 12, Mark: page.NotRun, Reason: "gpu"},
			{Page: "p.md", Lang: "go", Text: "x\n", Line: 16, From: "a/b.go"},
			{Page: "p.md", Lang: "text", Text: "y `z`\n", Line: 19},
			{Page: "p.md", Lang: "bash", Line: 23, Mark: page.Server},
		},
		Spans:   []page.Span{{"p.md", "b", 1}, {"p.md", "one two", 8}, {"p.md", "[no](z)", 9}},
		Links:   []page.Span{{"p.md", "x.md#y", 9}},
		Anchors: []string{"a-b-c-d", "same", "same-1"},
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParse_refusesWhatWouldHideABlock(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"```bash\nx\n":         "not closed",
		"<!-- run -->\n\ntext": "no block follows",
		"<!-- run -->\n<!-- run: server -->\n```\n```": "follows a mark",
	} {
		if _, err := page.Parse("p.md", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCommands_readsTheShellOfThePages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"steady a  b # c":                       {"steady|a|b"},
		"a 'b c' \"d e\" f\\ g ''":              {"a|b c|d e|f g|"},
		"a > file 2>&1\nb | c && d; e &":        {"a", "b", "c", "d", "e"},
		"a --x \\\n  --y\nb":                    {"a|--x|--y", "b"},
		"X=1 Y=2 a X=3":                         {"a|X=3"},
		"export X=1\n\n# only a comment\na x#y": {"a|x#y"},
		"a --input '{\"step\": 20}' < in":       {"a|--input|{\"step\": 20}"},
		"a --set x=$PWD/y 2> e":                 {"a|--set|x=$PWD/y"},
	} {
		got, err := page.Commands(text)
		var lines []string
		for _, c := range got {
			lines = append(lines, strings.Join(c.Words, "|"))
		}
		if err != nil || !slices.Equal(lines, want) {
			t.Errorf("%q: %q, %v, want %q", text, lines, err, want)
		}
	}
	if _, err := page.Commands("a 'b"); err == nil {
		t.Error("a quote that is not closed passes")
	}
	got, err := page.Commands("a \\\n b\n'c\nd'\ne")
	if err != nil || len(got) != 3 || got[0].Line != 1 || got[1].Line != 3 || got[2].Line != 5 {
		t.Errorf("lines of %+v, %v, want 1, 3 and 5", got, err)
	}
}
