// Package page reads the Markdown pages of the repository for the tests that check them: fenced blocks with the mark that says how a
// test treats them, commands in code spans, headings and links. It understands what these pages use of Markdown and of the shell, and no more. Only
// tests import it.
package page

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Mark says what a test does with a block of commands.
type Mark string

// The marks, as the comment in the line above a block says them: `<!-- run -->`, `<!-- run: server -->`, `<!-- not run: REASON -->`.
const (
	None   Mark = ""       // no comment
	Run    Mark = "run"    // run by the tests of cmd/steady, in a folder of its own for each page
	Server Mark = "server" // run by test/e2e, beside `steady dev`
	NotRun Mark = "not run"
)

// Reasons for which a block may be left alone. There are no others.
var Reasons = []string{
	"gpu",                 // needs an NVIDIA GPU, or the build with its engine
	"docker",              // needs docker
	"machines",            // needs several machines or a cluster
	"download",            // needs files that this repository does not have
	"minutes",             // takes minutes; a test of its own runs the same
	"machine",             // its result depends on what the machine has; the tests of the command run it with their own ports
	"placeholders",        // words in capitals stand for what only the reader has; docs/getting-started.md and docs/your-own.md run the same
	"started by the test", // the test that runs the page's other blocks has started it
}

// Block is a fenced block.
type Block struct {
	Page, Lang, Text string
	Line             int // of the opening fence, from 1
	Mark             Mark
	Reason           string // with NotRun
	From             string // the file of `<!-- from: FILE -->`, which holds the same text
}

// Where names the place of the block.
func (b Block) Where() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Span is a code span outside of blocks, with its line.
type Span struct {
	Page, Text string
	Line       int
}

// Where names the place of the span.
func (s Span) Where() string { return fmt.Sprintf("%s:%d", s.Page, s.Line) }

// Page is a Markdown page, taken apart.
type Page struct {
	Name    string // slash path from the root
	Blocks  []Block
	Spans   []Span
	Links   []Span   // targets of links
	Anchors []string // of headings, as GitHub makes them
}

// All reads every page that a reader of the project meets: README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/**.
func All(root string) ([]Page, error) {
	names := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			rel, rerr := filepath.Rel(root, path)
			names, err = append(names, filepath.ToSlash(rel)), rerr
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	pages := make([]Page, len(names))
	for i, name := range names {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		if pages[i], err = Parse(name, string(text)); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

var (
	fence   = regexp.MustCompile("^ {0,3}```([a-z]*)$")
	comment = regexp.MustCompile(`^<!-- (run|run: server|not run: (.+)|from: (\S+)) -->$`)
	span    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.+?)\s*$`)
)

// Parse takes a page apart. An error names a fence that is not closed, or a mark that is no mark of a block.
func Parse(name, text string) (Page, error) {
	p := Page{Name: name}
	var prose []string // lines outside of blocks; lines of blocks are empty here, so that numbers stay
	var open *Block
	mark, marked := Block{}, 0
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch m := fence.FindStringSubmatch(line); {
		case open != nil && m != nil && m[1] == "":
			p.Blocks, open = append(p.Blocks, *open), nil
			prose = append(prose, "")
			continue
		case open != nil:
			open.Text += line + "\n"
			prose = append(prose, "")
			continue
		case m != nil:
			open = &Block{Page: name, Lang: m[1], Line: i + 1, Mark: mark.Mark, Reason: mark.Reason, From: mark.From}
			mark, marked = Block{}, 0
			prose = append(prose, "")
			continue
		}
		if c := comment.FindStringSubmatch(line); c != nil {
			if marked > 0 {
				return p, fmt.Errorf("%s:%d: a mark follows a mark", name, i+1)
			}
			marked = i + 1
			switch {
			case c[3] != "":
				mark.From = c[3]
			case c[2] != "":
				mark.Mark, mark.Reason = NotRun, c[2]
			case c[1] == "run":
				mark.Mark = Run
			default:
				mark.Mark = Server
			}
			prose = append(prose, "")
			continue
		}
		if marked > 0 {
			return p, fmt.Errorf("%s:%d: no block follows the mark", name, marked)
		}
		if h := heading.FindStringSubmatch(line); h != nil {
			p.Anchors = append(p.Anchors, anchor(h[1], p.Anchors))
		}
		prose = append(prose, line)
	}
	if open != nil {
		return p, fmt.Errorf("%s:%d: the fence is not closed", name, open.Line)
	}
	p.scan(prose)
	return p, nil
}

// scan finds spans, which may go over the end of a line, and links in the text outside of blocks.
func (p *Page) scan(prose []string) {
	for first := 0; first < len(prose); first++ {
		last := first
		for last < len(prose) && strings.TrimSpace(prose[last]) != "" {
			last++
		}
		text := strings.Join(prose[first:last], "\n")
		at := func(offset int) int { return first + 1 + strings.Count(text[:offset], "\n") }
		for _, m := range span.FindAllStringSubmatchIndex(text, -1) {
			p.Spans = append(p.Spans, Span{p.Name, strings.Join(strings.Fields(text[m[2]:m[3]]), " "), at(m[0])})
		}
		bare := span.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("x", len(s)) })
		for _, m := range link.FindAllStringSubmatchIndex(bare, -1) {
			p.Links = append(p.Links, Span{p.Name, text[m[2]:m[3]], at(m[0])})
		}
		first = last
	}
}

// anchor is the fragment that GitHub gives a heading: letters, digits, '-' and '_' in lower case, blanks as '-', a number for the second one of a text.
func anchor(title string, before []string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	base := b.String()
	a := base
	for n := 1; slices.Contains(before, a); n++ {
		a = fmt.Sprintf("%s-%d", base, n)
	}
	return a
}
