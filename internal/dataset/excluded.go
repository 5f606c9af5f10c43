package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"

	"github.com/steadyrl/steady/internal/fault"
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

// ReadExcluded reads a list of excluded problems, JSON lines of Exclusion: {"platform": "atcoder:abc387_f"}, {"url": address} or
// {"text": statement}. Errors: Invalid (not such lines, an entry without an identity), and those of r.
func ReadExcluded(r io.Reader) (map[string]bool, error) {
	out := map[string]bool{}
	dec := json.NewDecoder(r)
	for n := 1; ; n++ {
		var e Exclusion
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "dataset.ReadExcluded", "entry %d: %w", n, err)
		}
		if !Exclude(out, e) {
			return nil, fault.New(fault.Invalid, "dataset.ReadExcluded", "entry %d has neither platform nor url nor text", n)
		}
	}
}
