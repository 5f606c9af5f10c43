package ui

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func ptr(v float64) *float64 { return &v }

func fixed() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

var states = []State{
	{Run: "r1", Phase: "dataset"},
	{Run: "r1", Phase: "training", Step: 0, Steps: 4, Open: 3},
	{Run: "r1", Phase: "training", Step: 0, Steps: 4, Open: 1, Done: 2},
	{Run: "r1", Phase: "training", Step: 1, Steps: 4, Reward: ptr(0.5), Lag: ptr(1), Dev: []DevRow{{Name: "0", Problems: 64, Solved: 26, Acc: 0.40625, PassRate: 0.5}}},
	{Run: "r1", Phase: "training", Step: 1, Steps: 4, Reward: ptr(0.5), Lag: ptr(1), Paused: true, Dev: []DevRow{{Name: "0", Problems: 64, Solved: 26, Acc: 0.40625, PassRate: 0.5}}},
}

func TestDisplay_plainWritesOnlyNews(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &Display{w: &out, now: fixed}
	for _, s := range states {
		d.Update(s)
	}
	d.Event("server restarted (%d)", 1)
	d.Close()
	want := strings.ReplaceAll(`T r1 dataset
T r1 training step 0/4
T r1 training step 1/4 reward 0.500 lag 1.00
T r1 dev at 0: 26/64 solved, acc 40.62 %, pass_rate 50.00 %
T r1 training (paused) step 1/4 reward 0.500 lag 1.00
T server restarted (1)
`, "T ", "2026-01-02 03:04:05Z ")
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// screen interprets the few control sequences that a display writes and returns what a person sees.
func screen(t *testing.T, text string) []string {
	t.Helper()
	var lines []string
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			n := 0
			for rest[0] >= '0' && rest[0] <= '9' {
				n, rest = 10*n+int(rest[0]-'0'), rest[1:]
			}
			rest, ok = strings.CutPrefix(rest, "A\r\x1b[J")
			if !ok || n > len(lines) {
				t.Fatalf("control sequence at %q, %d lines on the screen", text, len(lines))
			}
			lines, text = lines[:len(lines)-n], rest
			continue
		}
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			t.Fatalf("an unfinished line %q", line)
		}
		lines, text = append(lines, line), rest
	}
	return lines
}

// A row is written once, whatever became of the table since: it grows, is thinned out, or loses rows to a rollback.
func TestDisplay_plainWritesEachValidationOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tables, want []string }{
		"grows":       {[]string{"0", "0 3", "0 3", "0 3 6 9"}, []string{"0", "3", "6", "9"}},
		"thinned out": {[]string{"0 1 2 3", "0 2 3 4", "0 3 4 5"}, []string{"0", "1", "2", "3", "4", "5"}},
		"jumps":       {[]string{"0 1 2 3", "0 7 9"}, []string{"0", "1", "2", "3", "9"}},
		"rolled back": {[]string{"0 3 6", "0 3", "0 3 6"}, []string{"0", "3", "6", "3", "6"}},
		"all gone":    {[]string{"0 3", "", "0"}, []string{"0", "3", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			d := &Display{w: &b, now: func() time.Time { return time.Time{} }}
			for _, table := range c.tables {
				s := State{Run: "r1", Phase: "training"}
				for _, row := range strings.Fields(table) {
					s.Dev = append(s.Dev, DevRow{Name: row, Problems: 1})
				}
				d.Update(s)
			}
			var got []string
			for line := range strings.Lines(b.String()) {
				if _, after, ok := strings.Cut(line, " dev at "); ok {
					row, _, _ := strings.Cut(after, ":")
					got = append(got, row)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("lines for %v, want %v", got, c.want)
			}
		})
	}
}

func TestDisplay_terminalRedrawsInPlace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &Display{w: &out, now: fixed, width: func() int { return 44 }}
	for i, s := range states {
		d.Update(s)
		if i == 2 {
			d.Event("a worker was restarted")
		}
	}
	d.Close()
	d.Event("the end")
	want := []string{
		"a worker was restarted",
		"r1  training  [paused]",
		"[###...........] step 1 of 4",
		"last  reward 0.500  lag 1.00  -",
		"work  0 groups in flight, 0 ready, 0 droppe~",
		"dev   26/64 solved (40.6 %) at 0",
		"the end",
	}
	if d := cmp.Diff(want, screen(t, out.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The word for a state has a colour, and lines keep their width.
func TestDisplay_marksAState(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &Display{w: &out, now: fixed, width: func() int { return 44 }}
	d.Mark(func(s string) string { return "<" + s + ">" })
	d.Update(states[4])
	d.Update(states[3])
	if got := out.String(); strings.Count(got, "r1  training  <[paused]>\n") != 1 || strings.Count(got, "[paused]") != 1 {
		t.Errorf("got %q, want one marked state", got)
	}
}

func TestPlain_writesNoControlSequence(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := Plain(&out)
	for _, s := range states {
		d.Update(s)
	}
	d.Close()
	if got := out.String(); strings.ContainsRune(got, '\x1b') || strings.Count(got, "\n") != 5 {
		t.Errorf("got %q, want five plain lines", got)
	}
}

func TestNew_aFileIsNotATerminal(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	New(f).Update(states[0])
	data, err := os.ReadFile(f.Name())
	if err != nil || bytes.ContainsRune(data, '\x1b') || !bytes.HasSuffix(data, []byte("Z r1 dataset\n")) {
		t.Errorf("file = %q, %v, want one dated line", data, err)
	}
}

func TestDevTable_alignsColumns(t *testing.T) {
	t.Parallel()
	got := DevTable([]DevRow{
		{Name: "0", Problems: 256, Solved: 94, Acc: 0.3671875, PassRate: 0.4, FormatOK: 0.5, ToolUsed: 3, LengthCut: 0.25},
		{Name: "export", Problems: 256, Solved: 256, Acc: 1, PassRate: 1, FormatOK: 1},
	})
	want := `  step  solved       acc  pass_rate  format_ok  tool_used  length_cut
     0  94/256   36.72 %    40.00 %    50.00 %          3     25.00 %
export 256/256  100.00 %   100.00 %   100.00 %          0      0.00 %`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestShow_blockOnATerminalAndNewsElsewhere(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	d, p := &Display{w: &out, now: fixed, width: func() int { return 10 }}, Plain(&log)
	p.now = fixed
	for _, step := range []string{"one", "one", "two"} {
		for _, x := range []*Display{d, p} {
			x.Show([]string{"step " + step, "0123456789ab"}, "line "+step)
		}
	}
	if diff := cmp.Diff([]string{"step two", "012345678~"}, screen(t, out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "2026-01-02 03:04:05Z line one\n2026-01-02 03:04:05Z line two\n"; log.String() != want {
		t.Errorf("the log is %q", log.String())
	}
	if got := Bar(1, 4, 8) + Bar(0, 0, 2); got != "[##......][..]" {
		t.Errorf("bars %s", got)
	}
}
