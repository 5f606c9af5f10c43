// Package colour puts colour on a few words for a terminal: errors and states, nothing else. Anywhere but on a terminal, and where a person asked for
// none, text stays as it is. It imports nothing of this module.
package colour

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Palette colours words. The zero value colours nothing.
type Palette struct{ on bool }

// For returns the palette for a writer: colours if w is a terminal, unless NO_COLOR is set to anything or TERM is "dumb" or empty, which getenv tells
// (os.Getenv of the caller).
func For(w io.Writer, getenv func(string) string) Palette {
	return Palette{on: Terminal(w) && !Plain(getenv) && getenv("NO_COLOR") == ""}
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Plain reports whether the terminal understands no control sequences, by its name.
func Plain(getenv func(string) string) bool {
	name := getenv("TERM")
	return name == "" || name == "dumb"
}

// Bad is for errors and failures: red.
func (p Palette) Bad(s string) string { return p.paint("31", s) }

// Warn is for what wants a look: yellow.
func (p Palette) Warn(s string) string { return p.paint("33", s) }

// Good is for what is in order: green.
func (p Palette) Good(s string) string { return p.paint("32", s) }

// Hint is for what a person can do: bold.
func (p Palette) Hint(s string) string { return p.paint("1", s) }

func (p Palette) paint(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
