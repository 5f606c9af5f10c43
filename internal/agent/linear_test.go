package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/trajectory"
)

// most is a bound of the work for a text: each of four tags is searched once, and of what a call consists no byte is decoded more
// than a few times. The decoder reads at least 512 bytes for each of at most len/11 calls.
func most(length int) int { return 64*length + 2048 }

// The work of parsing grows with the length of the text and no faster, whatever is repeated in it. Bytes are counted, not time.
func TestParse_workIsLinear(t *testing.T) {
	t.Parallel()
	good := chat.CallOpen + `{"name": "run_python", "arguments": {"code": "print(1)"}}` + chat.CallClose
	for _, tt := range []struct{ name, head, unit, tail string }{
		{"empty calls", "", chat.CallOpen + chat.CallClose, ""},
		{"open tags", "", chat.CallOpen, ""},
		{"close tags", "", chat.CallClose, ""},
		{"good calls", "", good, ""},
		{"closed thoughts", "", chat.ThinkOpen + chat.ThinkClose, ""},
		{"closed thoughts, then a call", "", chat.ThinkOpen + chat.ThinkClose, good},
		{"a call, then thoughts", good, chat.ThinkOpen + chat.ThinkClose, ""},
		{"thoughts that hold calls", "", chat.ThinkOpen + good + chat.ThinkClose, ""},
		{"thoughts and calls", "", chat.ThinkOpen + chat.ThinkClose + chat.CallOpen + chat.CallClose, ""},
		{"open thoughts", "", chat.ThinkOpen, good},
		{"open objects", "", chat.CallOpen + "{", ""},
		{"open strings", "", chat.CallOpen + `{"`, ""},
		{"open strings, closed calls", "", chat.CallOpen + `{"` + chat.CallClose, ""},
		{"calls of strings", "", chat.CallOpen + `"` + chat.CallClose, ""},
		{"calls of escaped strings", "", chat.CallOpen + `{"\"` + chat.CallClose, ""},
		{"calls of lists", "", chat.CallOpen + "[", chat.CallClose},
		{"objects without a close", "", chat.CallOpen + "{}", ""},
		{"objects and spaces", "", chat.CallOpen + "{}   ", ""},
		{"depth", chat.CallOpen, `{"a":`, chat.CallClose},
		{"a long string", chat.CallOpen + `{"a": "`, chat.CallOpen, `"}` + chat.CallClose},
		{"plain text", "", "x", good},
	} {
		for _, n := range []int{1, 100, 1000, 10_000} {
			text := tt.head + strings.Repeat(tt.unit, n) + tt.tail
			s := newScan(text)
			s.turn()
			if s.work > most(len(text)) {
				t.Errorf("%s, %d times: %d bytes were looked at in a text of %d", tt.name, n, s.work, len(text))
			}
		}
	}
}

// Whether a call repeats an earlier one is decided from what was read when each turn ended: here no turn has any text to read.
func TestRepeats_readsNothingAgain(t *testing.T) {
	t.Parallel()
	a, b := &call{code: "a"}, &call{code: "b"}
	bad := &call{status: "malformed"}
	for _, tt := range []struct {
		name     string
		readings []reading
		want     bool
	}{
		{"first", []reading{{"", a}}, false},
		{"other code", []reading{{"", a}, {"", b}}, false},
		{"the same code", []reading{{"", a}, {"", b}, {"", a}}, true},
		{"broken and good", []reading{{"x", bad}, {"x", a}}, false},
		{"broken, other text", []reading{{"x", bad}, {"y", bad}}, false},
		{"broken, the same text", []reading{{"x", bad}, {"y", a}, {"x", bad}}, true},
		{"no call before", []reading{{"x", nil}, {"x", bad}}, false},
	} {
		l := &loop{t: &trajectory.Trajectory{Turns: make([]trajectory.Turn, len(tt.readings))}, readings: slices.Clone(tt.readings)}
		if got := l.repeats(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
