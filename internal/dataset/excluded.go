package dataset

import (
	"encoding/json"
	"io"

	"github.com/steadyrl/steady/internal/fault"
)

// ReadExcluded reads a list of excluded identities, JSON lines: {"platform": "atcoder:abc387_f"} or {"text": statement}.
func ReadExcluded(r io.Reader) (map[string]bool, error) {
	out := map[string]bool{}
	dec := json.NewDecoder(r)
	for n := 1; dec.More(); n++ {
		var line struct {
			Platform string `json:"platform"`
			Text     string `json:"text"`
			URL      string `json:"url"`
		}
		if err := dec.Decode(&line); err != nil {
			return nil, fault.New(fault.Invalid, "dataset.ReadExcluded", "entry %d: %w", n, err)
		}
		if line.Platform != "" {
			out["id:"+line.Platform] = true
		}
		if line.URL != "" {
			out["url:"+URLKey(line.URL)] = true
		}
		if line.Text != "" {
			out["text:"+TextKey(line.Text)] = true
		}
	}
	return out, nil
}
