package contract_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/contract"
)

// What a request says of itself is read back without doubt; the keys are the contract.
func FuzzStopRequest(f *testing.F) {
	for _, s := range []string{`{"step": 3}`, `{"Step": 3}`, `{"step": 3, "step": 4}`, `{}`, `null`, `{"step": null}`, `{"stpe": 1}`, `[]`, `3`, `{"step": 1e3}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var q contract.StopRequest
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			if told := q.Doubt(); json.Valid([]byte(text)) && (told == nil || !strings.HasPrefix(told.Error(), "the input is") && !strings.Contains(told.Error(), "want a whole number") && !strings.Contains(told.Error(), "not known (known: step)")) {
				t.Errorf("%q is refused with %v, %v", text, err, told)
			}
			return
		}
		data, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var again contract.StopRequest
		if err := json.Unmarshal(data, &again); err != nil || again.Doubt() != nil || again.Step != q.Step {
			t.Errorf("%q is %+v, again %+v: %v, %v", text, q, again, err, again.Doubt())
		}
		var loose map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &loose); err == nil && q.Doubt() == nil {
			for key, value := range loose {
				if key != "step" || string(value) == "null" {
					t.Errorf("%q is taken without doubt", text)
				}
			}
		}
	})
}
