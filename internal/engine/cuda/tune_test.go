//go:build cuda

package cuda

import (
	"testing"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

var _ engine.Chooser = (*Trainer)(nil)

// A run's choices go before a machine's, and those of another card are left alone.
func TestTuned_aRunsChoicesGoFirst(t *testing.T) {
	t.Parallel()
	shape := cudart.Shape{Rows: 128}
	here := func() *tuned {
		return &tuned{device: "h200", known: map[string]string{"a": "01", "b": "02"}, done: map[cudart.Shape]bool{shape: true}}
	}
	run := &tuned{device: "h200", known: map[string]string{"b": "03", "c": "04"}}
	got := here()
	if err := got.bind(run.choices()); err != nil {
		t.Fatal(err)
	}
	if got.known["a"] != "01" || got.known["b"] != "03" || got.known["c"] != "04" || got.done[shape] {
		t.Errorf("known %v, used %v; want the run's b and c, to be set again", got.known, got.done)
	}
	other := here()
	run.device = "a100"
	if err := other.bind(run.choices()); err != nil || other.known["b"] != "02" || !other.done[shape] {
		t.Errorf("choices of another card: %v, known %v", err, other.known)
	}
	for _, damaged := range []string{"", "{", "[]", `{"products":{}}`} {
		if err := here().bind([]byte(damaged)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%q: got %v, want Corrupt", damaged, err)
		}
	}
	var none *tuned
	if data := none.choices(); data != nil {
		t.Errorf("an engine that measures nothing has the choices %s", data)
	}
	if err := none.bind(run.choices()); err != nil {
		t.Error(err)
	}
}
