package judge

import "strings"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
	// turnOpen on a line of its own begins an assistant turn, the other two end one.
	turnOpen  = "<|im_start|>assistant"
	turnClose = "<|im_end|>"
	textEnd   = "<|endoftext|>"
	// maxIndent is the largest indentation of a fence; four blanks would make it text.
	maxIndent = 3
)

// ExtractCode returns the submitted program of a response: the last closed fenced code block after the last reasoning in
// the last assistant segment. ok is false if there is none, or if reasoning is opened and not closed. A fence that is
// left open takes nothing away from the closed blocks before it. The code may be empty.
//
// The segment is what follows the last line that opens an assistant turn, or the whole response if there is none, up
// to the first mark that ends a turn or the text.
func ExtractCode(response string) (code string, ok bool) {
	segment := lastSegment(response)
	if i := strings.LastIndex(segment, thinkClose); i >= 0 {
		segment = segment[i+len(thinkClose):]
	}
	var body strings.Builder
	var open fence
	inside, reasoning := false, false
	for line := range strings.Lines(segment) {
		f, isFence := parseFence(line)
		switch {
		case inside && isFence && f.closes(open):
			// A mark of reasoning in a closed block is a part of the program.
			code, ok, inside, reasoning = body.String(), true, false, false
		case inside:
			body.WriteString(open.unindent(line))
			reasoning = reasoning || strings.Contains(line, thinkOpen)
		case strings.Contains(line, thinkOpen):
			return "", false
		case isFence && f.opens():
			open, inside = f, true
			body.Reset()
		}
	}
	if reasoning {
		return "", false
	}
	return code, ok
}

// lastSegment returns the text of the last assistant turn, without its marks.
func lastSegment(response string) string {
	for end := len(response); ; {
		i := strings.LastIndex(response[:end], turnOpen)
		if i < 0 {
			break
		}
		rest := strings.TrimPrefix(response[i+len(turnOpen):], "\r")
		if (i == 0 || response[i-1] == '\n') && (rest == "" || rest[0] == '\n') {
			response = rest
			break
		}
		end = i
	}
	response, _, _ = strings.Cut(response, turnClose)
	response, _, _ = strings.Cut(response, textEnd)
	return response
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
