package engine_test

import (
	"math"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// Every bound holds at equality and fails one step beyond.
func TestRequest_check(t *testing.T) {
	t.Parallel()
	room := engine.Room{Vocab: 10, TopK: 4, Tokens: 8}
	good := engine.Request{Tokens: []int32{0, 9}, MaxNew: 6, Sampling: engine.Sampling{Temperature: 1e-9, TopK: 4}}
	for name, tt := range map[string]struct {
		change func(r *engine.Request)
		kind   fault.Kind
	}{
		"at every bound":        {func(*engine.Request) {}, ""},
		"no prefix":             {func(r *engine.Request) { r.Tokens = nil }, fault.Invalid},
		"nothing new":           {func(r *engine.Request) { r.MaxNew = 0 }, fault.Invalid},
		"no temperature":        {func(r *engine.Request) { r.Temperature = 0 }, fault.Invalid},
		"temperature NaN":       {func(r *engine.Request) { r.Temperature = math.NaN() }, fault.Invalid},
		"temperature infinite":  {func(r *engine.Request) { r.Temperature = math.Inf(1) }, fault.Invalid},
		"a negative record":     {func(r *engine.Request) { r.TopK = -1 }, fault.Invalid},
		"too wide a record":     {func(r *engine.Request) { r.TopK = 5 }, fault.Invalid},
		"a negative id":         {func(r *engine.Request) { r.Tokens = []int32{0, -1} }, fault.Invalid},
		"an id too large":       {func(r *engine.Request) { r.Tokens = []int32{0, 10} }, fault.Invalid},
		"one token too many":    {func(r *engine.Request) { r.MaxNew = 7 }, fault.Exhausted},
		"more than can be said": {func(r *engine.Request) { r.MaxNew = math.MaxInt }, fault.Exhausted},
	} {
		r := good
		tt.change(&r)
		if err := r.Check("op", room); fault.KindOf(err) != tt.kind {
			t.Errorf("%s: %v, want %q", name, err, tt.kind)
		}
	}
}
