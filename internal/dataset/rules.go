package dataset

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/judge"
)

// image matches placeholders of pictures, and wording that needs one; the bare words figure and picture over-drop.
var image = regexp.MustCompile(`(?i)<image>|\[image\]|!\[[^\]]*\]\(|(figure|picture|image|diagram) (below|above|shown)|(below|above|following) (figure|picture|image|diagram)`)

// special matches phrases of problems with more than one right output: many outputs, letter case, tolerance,
// interaction. docs/data.md has what was measured of them.
var special = regexp.MustCompile(`(?i)\b(?:(?:print|output)\s+any|any\s+of\s+them|any\s+(?:valid|suitable|one\s+of|such|correct|optimal)|` +
	`(?:if\s+)?there\s+(?:are|is|exist|exists)\s+(?:several|multiple|many|more\s+than\s+one)\s+(?:answers?|solutions?|ways?|possible|valid|correct|such|optimal|of)|` +
	`multiple\s+(?:answers|solutions|valid)|if\s+(?:there\s+(?:are|is)\s+)?(?:several|multiple|many|more\s+than\s+one)|` +
	`(?:any|arbitrary)\s+order|find\s+any|considered\s+correct\s+if|(?:absolute|relative)\s+error|` +
	`any\s+(?:letter\s+)?(?:case|register)|upper\s+case\s+or\s+lower\s+case|case[-\s]insensitive|interactive\s+(?:problem|task)|fflush|flush\s+(?:the\s+)?output)|` +
	`\b1(?:\.0*)?e\s*[-\x{2212}]\s*\d|\b10\s*(?:\^|\*\*)\s*[({]*\s*[-\x{2212}\x{2013}]\s*[({]*\s*\d`)

// specialTags are the raw tags that mean the same, in lower case.
var specialTags = []string{"interactive", "*special", "*special problem"}

// candidate is a row on its way through the rules.
type candidate struct {
	problem   Problem
	tests     []judge.Test
	solutions []string
}

// parse applies the rules that need only the row, in order. reason is Kept if the row passed.
func parse(r *Row, o ShardOptions) (c candidate, reason Reason, evidence string) {
	c, reason, evidence = usable(r, o)
	if reason != Kept {
		return c, reason, evidence
	}
	var err error
	if c.solutions, err = parseSolutions(value(r.Solutions)); r.Solutions != nil && err != nil {
		return c, BadSolutions, clip(err.Error())
	}
	if len(c.solutions) == 0 {
		return c, NoSolution, "no program"
	}
	if i := shown(c.problem.Statement, c.solutions); i >= 0 {
		return c, SolutionShown, fmt.Sprintf("solution %d", i)
	}
	return c, Kept, ""
}

// usable applies the rules up to those about reference programs.
func usable(r *Row, o ShardOptions) (c candidate, reason Reason, evidence string) {
	for _, at := range r.places() {
		if n := len(value(*at)); n > o.MaxCell {
			return c, CellTooLarge, fmt.Sprintf("a cell of %d bytes, the limit is %d", n, o.MaxCell)
		}
	}
	statement := value(r.Question)
	if why := badText(statement); why != "" {
		return c, BadStatement, why
	}
	if code := strings.TrimSpace(value(r.StarterCode)); code != "" {
		return c, CallBased, "starter code: " + clip(code)
	}
	if r.InputOutput == nil {
		return c, BadTests, "null"
	}
	inputs, outputs, call, err := parseTests(*r.InputOutput)
	switch {
	case call:
		return c, CallBased, "fn_name"
	case err != nil:
		return c, BadTests, clip(err.Error())
	case len(inputs) != len(outputs):
		return c, UnequalTests, fmt.Sprintf("%d inputs, %d outputs", len(inputs), len(outputs))
	case len(inputs) < max(o.MinTests, 1):
		return c, NoTests, fmt.Sprintf("%d tests", len(inputs))
	}
	for i := range inputs {
		c.tests = append(c.tests, judge.Test{Input: inputs[i], Output: outputs[i]})
	}
	if reason, evidence := looks(r, statement); reason != Kept {
		return c, reason, evidence
	}
	c.problem = Problem{
		Statement: statement, Samples: samples(statement), Title: value(r.Name), Source: value(r.Source), URL: value(r.URL),
		Platform: PlatformID(value(r.URL)), Difficulty: value(r.Difficulty), TimeLimit: value(r.TimeLimit),
		MemoryLimit: value(r.MemoryLimit), Date: value(r.Date), Tags: parseList(value(r.Tags)), HiddenTests: len(c.tests),
	}
	return c, Kept, ""
}

// looks applies the rules about the statement.
func looks(r *Row, statement string) (Reason, string) {
	if n, err := strconv.Atoi(strings.TrimSpace(value(r.PictureNum))); err == nil && n > 0 {
		return Image, fmt.Sprintf("picture_num %d", n)
	}
	if m := image.FindString(statement); m != "" {
		return Image, clip(m)
	}
	if m := special.FindString(statement); m != "" {
		return SpecialJudge, clip(m)
	}
	for _, tag := range append(parseList(value(r.RawTags)), parseList(value(r.Tags))...) {
		if slices.Contains(specialTags, strings.ToLower(tag)) {
			return SpecialJudge, "tag " + clip(tag)
		}
	}
	return Kept, ""
}

func clip(s string) string {
	const most = 120
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
