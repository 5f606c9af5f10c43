package page

import (
	"errors"
	"strings"
)

// Command is a simple command of the shell: its words without quotes, assignments in front and redirections. A variable stays as it is written.
type Command struct {
	Words []string
	Line  int // in the text, from 1
}

// Commands takes shell text apart, as far as the pages use the shell: quotes, comments, continued lines, pipes, lists and redirections. Errors: a quote
// that is not closed.
func Commands(text string) ([]Command, error) {
	l := lexer{text: text, line: 1, first: 1}
	for l.at < len(l.text) {
		if err := l.step(); err != nil {
			return nil, err
		}
	}
	l.command()
	return l.out, nil
}

type lexer struct {
	text        string
	at          int
	line, first int
	word        strings.Builder
	has         bool // a word has begun, perhaps an empty one
	skip        bool // the next word is the target of a redirection
	words       []string
	out         []Command
}

func (l *lexer) step() error {
	c := l.text[l.at]
	l.at++
	switch c {
	case ' ', '\t':
		l.end()
	case '\n', ';', '|', '&':
		l.command()
		if c == '\n' {
			l.line++
		}
		l.first = l.line
	case '>', '<':
		if w := l.word.String(); l.has && (w == "1" || w == "2") { // the number of a stream
			l.word.Reset()
			l.has = false
		}
		l.end()
		l.skip = true
		for l.at < len(l.text) && strings.IndexByte(">&", l.text[l.at]) >= 0 {
			l.at++
		}
	case '#':
		if l.has {
			l.add(c)
			break
		}
		for l.at < len(l.text) && l.text[l.at] != '\n' {
			l.at++
		}
	case '\\':
		if l.at < len(l.text) {
			if l.text[l.at] == '\n' {
				l.line++
			} else {
				l.add(l.text[l.at])
			}
			l.at++
		}
	case '\'', '"':
		n := strings.IndexByte(l.text[l.at:], c)
		if n < 0 {
			return errors.New("a quote is not closed")
		}
		l.has = true
		l.word.WriteString(l.text[l.at : l.at+n])
		l.line += strings.Count(l.text[l.at:l.at+n], "\n")
		l.at += n + 1
	default:
		l.add(c)
	}
	return nil
}

func (l *lexer) add(c byte) {
	l.has = true
	l.word.WriteByte(c)
}

// end ends a word.
func (l *lexer) end() {
	if !l.has {
		return
	}
	if !l.skip {
		l.words = append(l.words, l.word.String())
	}
	l.word.Reset()
	l.has, l.skip = false, false
}

// command ends a simple command.
func (l *lexer) command() {
	l.end()
	for len(l.words) > 0 && (l.words[0] == "export" || isAssignment(l.words[0])) {
		l.words = l.words[1:]
	}
	if len(l.words) > 0 {
		l.out = append(l.out, Command{l.words, l.first})
	}
	l.words, l.skip = nil, false
}

// isAssignment reports whether a word has the form NAME=value.
func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
