package transcript

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/trajectory"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"visible": Visible}).Parse(pageText))

// JSON writes the transcript as one line. Errors: Numeric (a number that JSON cannot spell), those of w.
func (t *Transcript) JSON(w io.Writer) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t); err != nil {
		return fault.New(fault.Numeric, "transcript.JSON", "%w", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// HTML writes the transcript as a page that needs no other file. Errors: those of w.
func (t *Transcript) HTML(w io.Writer) error { return page.Execute(w, t) }

// Text writes the transcript for a terminal. Errors: those of w.
func (t *Transcript) Text(w io.Writer) error {
	var b strings.Builder
	for _, f := range t.Facts() {
		fmt.Fprintf(&b, "%-10s %s\n", f.Name, Visible(f.Value))
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		fmt.Fprintf(&b, "\n=== %s ===\n%s\n", Visible(s.Title()), strings.TrimSuffix(Visible(s.Text), "\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Visible spells out what a terminal would act on or hide: control characters other than the line break and the tab, and
// marks of the writing direction.
func Visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x100 && unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Fact is a line of the head.
type Fact struct{ Name, Value string }

// Facts are the lines of the head.
func (t *Transcript) Facts() []Fact {
	var out []Fact
	add := func(name, format string, args ...any) { out = append(out, Fact{name, fmt.Sprintf(format, args...)}) }
	add("run", "%s, lineage %s", t.Run, t.Lineage)
	switch {
	case t.Group != nil:
		add("group", "%d, sample %d; submitted in step %d; %s", *t.Group, t.Sample, t.Tag, t.Fate)
	case t.Validation != "":
		add("validation", "%s", t.Validation)
	}
	add("problem", "%s, number %d of split %s", t.ProblemID, t.Problem, t.Split)
	if t.End == "" {
		add("end", "none: it is not finished")
	} else {
		add("end", "%s", t.End)
	}
	add("tokens", "%d of prompt, %d of response, of these %d sampled", t.PromptTokens, t.ResponseTokens, t.SampledTokens)
	if t.MinVersion != nil && t.MaxVersion != nil {
		add("versions", "%d to %d", *t.MinVersion, *t.MaxVersion)
	}
	add("time", "%.3f s, tools included", t.Seconds)
	if v := t.Verdict; v != nil {
		add("verdict", "%s, %d of %d tests passed, reward %.3f", v.Kind, v.Passed, v.Total, v.Reward)
	}
	if t.Advantage != nil {
		add("advantage", "%+.3f", *t.Advantage)
	}
	return out
}

// Title names a segment, with what became of the call of a turn.
func (s *Segment) Title() string {
	tokens := fmt.Sprintf("%d tokens from %d", s.End-s.Begin, s.Begin)
	switch s.Origin {
	case Prompt:
		return "prompt, " + tokens
	case Answer:
		return fmt.Sprintf("answer to turn %d, not trained, %s", s.Turn+1, tokens)
	}
	title := fmt.Sprintf("turn %d, sampled, %s", s.Turn+1, tokens)
	if s.Call != nil {
		title += "; call: " + call(s.Call)
	}
	return title
}

// call is what became of a call, in words.
func call(c *trajectory.Call) string {
	text := c.Status
	if c.Outcome != "" {
		text += fmt.Sprintf(", %s in %.3f s", c.Outcome, c.Seconds)
	}
	if c.Ignored > 0 {
		text += fmt.Sprintf(", further calls ignored: %d", c.Ignored)
	}
	switch {
	case c.CutCharacters > 0:
		text += fmt.Sprintf(", characters cut from the middle of the output: %d", c.CutCharacters)
	case c.Cut:
		text += ", output cut in the middle"
	}
	return text
}
