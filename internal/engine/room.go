package engine

import (
	"math"

	"github.com/steadyrl/steady/internal/fault"
)

// Room is what a Sampler has room for.
type Room struct {
	Vocab  int // ids are below it
	TopK   int // widest record; at most Vocab
	Tokens int // longest sequence, prefix and new tokens together
}

// Check reports why a Sampler with that room cannot answer a request; op is the operation in the message. Which version is live
// is not looked at. Errors: Invalid, Exhausted.
func (r *Request) Check(op string, room Room) error {
	switch {
	case len(r.Tokens) == 0:
		return fault.New(fault.Invalid, op, "the prefix is empty")
	case r.MaxNew < 1:
		return fault.New(fault.Invalid, op, "max_new is %d, want at least 1", r.MaxNew)
	case !(r.Temperature > 0) || math.IsInf(r.Temperature, 0):
		return fault.New(fault.Invalid, op, "temperature is %v, want a finite number above 0", r.Temperature)
	case r.TopK < 0 || r.TopK > room.TopK:
		return fault.New(fault.Invalid, op, "top_k is %d, want 0 to %d", r.TopK, room.TopK)
	}
	return room.Check(op, r.Tokens, r.MaxNew)
}

// Check reports why tokens, with more of them to follow, do not fit. Errors: Invalid (an id outside the vocabulary), Exhausted.
func (room Room) Check(op string, tokens []int32, more int) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= room.Vocab {
			return fault.New(fault.Invalid, op, "token %d has id %d, the vocabulary has %d", i, id, room.Vocab)
		}
	}
	if more > room.Tokens-len(tokens) {
		return fault.New(fault.Exhausted, op, "%d tokens and %d new ones, there is room for %d", len(tokens), more, room.Tokens).
			WithHint("shorten the prompt or lower the number of new tokens")
	}
	return nil
}
