package judge

import "strings"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
	// maxIndent is the largest indentation of a fence; four blanks would make it text.
	maxIndent = 3
)

// ExtractCode returns the submitted program of the last assistant segment: the last closed fenced code block after the
// last reasoning. ok is false if there is none, if reasoning is opened and not closed, or if a fence is
// left open at the end, because then the answer was cut. The code may be empty.
func ExtractCode(segment string) (code string, ok bool) {
	if i := strings.LastIndex(segment, thinkClose); i >= 0 {
		segment = segment[i+len(thinkClose):]
	}
	if strings.Contains(segment, thinkOpen) && opensReasoning(segment) {
		return "", false
	}
	var body strings.Builder
	var open fence
	inside := false
	for line := range strings.Lines(segment) {
		f, isFence := parseFence(line)
		switch {
		case inside && isFence && f.closes(open):
			code, ok, inside = body.String(), true, false
		case inside:
			body.WriteString(open.unindent(line))
		case isFence && f.opens():
			open, inside = f, true
			body.Reset()
		}
	}
	if inside {
		return "", false
	}
	return code, ok
}

// opensReasoning reports whether a reasoning mark stands outside of code, where it could be a part of the program.
func opensReasoning(segment string) bool {
	var open fence
	inside := false
	for line := range strings.Lines(segment) {
		f, isFence := parseFence(line)
		switch {
		case inside && isFence && f.closes(open):
			inside = false
		case !inside && strings.Contains(line, thinkOpen):
			return true
		case !inside && isFence && f.opens():
			open, inside = f, true
		}
	}
	return false
}

// fence is a line that starts with at least three backquotes or tildes.
type fence struct {
	char           byte
	length, indent int
	info           string // what follows, trimmed
}

func parseFence(line string) (fence, bool) {
	line = strings.TrimRight(line, "\r\n")
	rest := strings.TrimLeft(line, " ")
	f := fence{indent: len(line) - len(rest)}
	if f.indent > maxIndent || rest == "" || rest[0] != '`' && rest[0] != '~' {
		return f, false
	}
	f.char = rest[0]
	f.length = len(rest) - len(strings.TrimLeft(rest, rest[:1]))
	f.info = strings.Trim(rest[f.length:], " \t")
	return f, f.length >= 3
}

// opens is false for inline code that happens to start a line.
func (f fence) opens() bool { return f.char == '~' || !strings.Contains(f.info, "`") }

func (f fence) closes(open fence) bool {
	return f.char == open.char && f.length >= open.length && f.info == ""
}

// unindent removes as many blanks as the opening fence had.
func (f fence) unindent(line string) string {
	for i := 0; i < f.indent && strings.HasPrefix(line, " "); i++ {
		line = line[1:]
	}
	return line
}
