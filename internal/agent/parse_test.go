package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/chat"
)

// FuzzParse: whatever a model writes is a call of a known status or none, and a good call behind any text without tags is
// read as it was meant, whatever follows it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "<think>", "<think></think>", "<tool_call>", "<tool_call>{}</tool_call>", "</tool_call>", "<think><tool_call>{\"name\": 1}", "{\"name\": \"run_python\"}",
		"<tool_call>{\"name\": \"run_python\", \"arguments\": \"{}\"}</tool_call>", "print('</tool_call>')", "\\ud800", "<think>a</think><tool_call>[",
	} {
		f.Add(s, s, s)
		f.Add("text", s, "")
	}
	statuses := []string{"", "malformed", "unknown_tool", "bad_arguments", "in_thinking"}
	f.Fuzz(func(t *testing.T, before, code, after string) {
		before, code, after = strings.ToValidUTF8(before, "?"), strings.ToValidUTF8(code, "?"), strings.ToValidUTF8(after, "?")
		for _, text := range []string{before, before + code, before + code + after} {
			scan := newScan(text)
			c := scan.turn()
			switch {
			case scan.work > most(len(text)):
				t.Fatalf("%q: %d bytes were looked at", text, scan.work)
			case c == nil && strings.Contains(text, chat.CallOpen) && !strings.Contains(text, chat.ThinkClose):
				t.Fatalf("%q: the call is lost", text)
			case c == nil:
			case !strings.Contains(text, chat.CallOpen) || !slices.Contains(statuses, c.status) || (c.problem == "") != (c.status == ""):
				t.Fatalf("%q: %+v", text, c)
			case c.ignored >= strings.Count(text, chat.CallOpen):
				t.Fatalf("%q: %d calls were ignored", text, c.ignored)
			}
		}
		if strings.Contains(before, "<") {
			return
		}
		args, err := json.Marshal(map[string]string{"code": code, "stdin": after})
		if err != nil {
			t.Fatal(err)
		}
		quoted, err := json.Marshal(string(args))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []string{string(args), string(quoted)} {
			text := before + chat.CallOpen + "\n{\"name\": \"run_python\", \"arguments\": " + a + "}\n" + chat.CallClose + after
			if c := parse(text, nil); c == nil || c.status != "" || c.code != code || c.stdin != after {
				t.Fatalf("%q is read as %+v", text, c)
			}
		}
	})
}
