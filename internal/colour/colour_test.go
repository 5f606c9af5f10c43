package colour_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/colour"
	"github.com/steadyrl/steady/internal/testutil"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == name {
				return v
			}
		}
		return ""
	}
}

// Only a terminal that understands colours, and whose owner wants them, gets them.
func TestFor_coloursOnlyATerminalThatMayHaveThem(t *testing.T) {
	t.Parallel()
	terminal := testutil.Terminal(t)
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	for _, c := range []struct {
		name string
		w    io.Writer
		env  func(string) string
		want bool
	}{
		{"terminal", terminal, environment("TERM=xterm-256color"), true},
		{"terminal, NO_COLOR empty", terminal, environment("TERM=xterm", "NO_COLOR="), true},
		{"terminal, NO_COLOR", terminal, environment("TERM=xterm", "NO_COLOR=1"), false},
		{"terminal, NO_COLOR=0", terminal, environment("TERM=xterm", "NO_COLOR=0"), false},
		{"dumb terminal", terminal, environment("TERM=dumb"), false},
		{"terminal without a name", terminal, environment(), false},
		{"file", file, environment("TERM=xterm"), false},
		{"pipe", pipe, environment("TERM=xterm"), false},
		{"buffer", &bytes.Buffer{}, environment("TERM=xterm"), false},
	} {
		p := colour.For(c.w, c.env)
		for _, paint := range []func(string) string{p.Bad, p.Warn, p.Good, p.Hint} {
			if got := paint("x"); (got != "x") != c.want || !strings.Contains(got, "x") {
				t.Errorf("%s: %q, colours wanted: %v", c.name, got, c.want)
			}
			if got := paint(""); got != "" {
				t.Errorf("%s: nothing became %q", c.name, got)
			}
		}
	}
	if got, want := colour.For(terminal, environment("TERM=xterm")).Bad("error:"), "\x1b[31merror:\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ); err != nil {
		t.Errorf("the test's terminal is none: %v", err)
	}
}
