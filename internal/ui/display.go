package ui

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Display shows a run on a writer.
//
// Concurrency: all methods may be called from any goroutine.
type Display struct {
	mu    sync.Mutex
	w     io.Writer
	width func() int // nil: not a terminal
	now   func() time.Time
	drawn int    // lines of the block on the screen
	last  string // newest plain line
	block []string
	dev   string              // name of the newest validation written as a plain line
	mark  func(string) string // colours the word for a state; nil for none
}

// Plain returns a display that writes plain lines, also on a terminal, which may understand no more.
func Plain(w io.Writer) *Display { return &Display{w: w, now: time.Now} }

// Mark says how the word for a state that wants a look is coloured on a terminal; without it there are no colours. Call it before Update.
func (d *Display) Mark(paint func(string) string) { d.mark = paint }

// New returns a display on f: redrawn in place if f is a terminal, plain lines otherwise.
func New(f *os.File) *Display {
	d := &Display{w: f, now: time.Now}
	if _, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		d.width = func() int { return terminalWidth(f) }
	}
	return d
}

// Show shows lines of the caller's own: block is redrawn in place on a terminal, line is written anywhere else if it differs from
// the one before.
func (d *Display) Show(block []string, line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.width != nil {
		d.block = nil
		for _, b := range block {
			d.block = append(d.block, cut(b, d.width()))
		}
		d.redraw("")
		return
	}
	if line != d.last {
		d.last = line
		d.line(line)
	}
}

// Bar draws how much of all is done, of the given width without its brackets.
func Bar(done, all, width int) string { return bar(done, max(all, 1), width) }

// terminalWidth returns the columns of the terminal, 80 if it does not say.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// Update shows s. On a plain writer it writes a line only if something worth a line has changed.
func (d *Display) Update(s State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.width != nil {
		d.block = s.lines(d.width())
		if d.mark != nil && s.Paused { // after the lines have their width
			d.block[0] = strings.Replace(d.block[0], pausedMark, d.mark(pausedMark), 1)
		}
		d.redraw("")
		return
	}
	if line := s.plain(); line != d.last {
		d.last = line
		d.line(line)
	}
	for _, r := range d.news(s.Dev) {
		d.dev = r.Name
		d.line(fmt.Sprintf("%s dev at %s: %d/%d solved, acc %.2f %%, pass_rate %.2f %%", s.Run, r.Name, r.Solved, r.Problems, 100*r.Acc, 100*r.PassRate))
	}
}

// news returns the rows after the one that was written last. A table that does not have it (thinned out, or gone with a
// rollback) has one piece of news, its newest row.
func (d *Display) news(rows []DevRow) []DevRow {
	if d.dev == "" {
		return rows
	}
	if i := slices.IndexFunc(rows, func(r DevRow) bool { return r.Name == d.dev }); i >= 0 {
		return rows[i+1:]
	}
	return rows[max(len(rows)-1, 0):]
}

// Event writes a line that stays, above the block.
func (d *Display) Event(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if d.width == nil {
		d.line(text)
		return
	}
	d.redraw(text + "\n")
}

// Close leaves the last block on the screen and writes nothing more.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drawn, d.block = 0, nil
}

// redraw replaces the block by above and the block.
func (d *Display) redraw(above string) {
	var b strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	b.WriteString(above)
	for _, line := range d.block {
		b.WriteString(line + "\n")
	}
	d.drawn = len(d.block)
	d.write(b.String())
}

func (d *Display) line(text string) {
	d.write(d.now().UTC().Format("2006-01-02 15:04:05Z ") + text + "\n")
}

// write ignores errors: a closed pipe must not end a run.
func (d *Display) write(text string) { _, _ = io.WriteString(d.w, text) }
