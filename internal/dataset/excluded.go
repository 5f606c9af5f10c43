package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/jsonl"
)

// Exclusion is an entry of a list of excluded problems.
type Exclusion struct {
	Platform string `json:"platform,omitempty"` // as PlatformID, for example atcoder:abc387_f
	URL      string `json:"url,omitempty"`
	Text     string `json:"text,omitempty"` // statement
}

// Exclude adds the identities of an entry to a set, and reports whether it has any.
func Exclude(set map[string]bool, e Exclusion) bool {
	found := false
	for _, id := range identities(&Problem{Statement: e.Text, URL: e.URL, Platform: cmp.Or(e.Platform, PlatformID(e.URL))}) {
		set[id.key], found = true, true
	}
	return found
}

const excludedHint = `a line is {"platform": "atcoder:abc387_f"}, {"url": "https://..."} or {"text": "..."}, or has several of them`

// ReadExcluded reads a list of excluded problems, JSON Lines of Exclusion: {"platform": "atcoder:abc387_f"}, {"url": address} or {"text": statement}. A key
// may be null, blank lines are passed over, and there may be none at all; name is for messages. Errors: Invalid (not such lines, other keys, an entry
// without an identity), with line and field for each bad line up to 20; also where r fails.
func ReadExcluded(r io.Reader, name string) (map[string]bool, error) {
	out := map[string]bool{}
	told, all := jsonl.Told{Name: name}, 0
	err := jsonl.Lines(r, func(n int, line json.RawMessage, broken error) error {
		all = n
		switch {
		case errors.Is(broken, jsonl.ErrBlank):
			return nil
		case broken != nil:
			told.Add(n, broken)
			return nil
		}
		f, wrong := jsonl.AllFields("", line, "platform?", "url?", "text?")
		text := func(name string) string {
			raw := f[name]
			if k := jsonl.Kind(raw); k == jsonl.Missing || k == jsonl.Null {
				return ""
			}
			s, err := jsonl.Text(name, raw)
			if err != nil {
				wrong = append(wrong, err)
			}
			return s
		}
		if e := (Exclusion{Platform: text("platform"), URL: text("url"), Text: text("text")}); !Exclude(out, e) && len(wrong) == 0 {
			wrong = append(wrong, fault.New(fault.Invalid, "", "it has neither platform nor url nor text"))
		}
		told.Add(n, wrong...)
		return nil
	})
	if err != nil && !errors.Is(err, jsonl.ErrEmpty) {
		return nil, fault.New(fault.Invalid, "", "%s: %w", name, err).WithHint("give a file that can be read")
	}
	if err := told.Err(all); err != nil {
		return nil, err.WithHint("%s", excludedHint)
	}
	return out, nil
}
