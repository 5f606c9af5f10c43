package dataset

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/steadyrl/steady/internal/fault"
)

// ReadExcluded reads a list of excluded identities, JSON lines: {"platform": "atcoder:abc387_f"}, {"url": address} or
// {"text": statement}. Errors: Invalid (not such lines, an entry without an identity), and those of r.
func ReadExcluded(r io.Reader) (map[string]bool, error) {
	out := map[string]bool{}
	dec := json.NewDecoder(r)
	for n := 1; ; n++ {
		var line struct {
			Platform string `json:"platform"`
			Text     string `json:"text"`
			URL      string `json:"url"`
		}
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "dataset.ReadExcluded", "entry %d: %w", n, err)
		}
		if line.Platform == "" && line.URL == "" && line.Text == "" {
			return nil, fault.New(fault.Invalid, "dataset.ReadExcluded", "entry %d has neither platform nor url nor text", n)
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
}
