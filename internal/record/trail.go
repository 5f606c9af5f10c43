package record

import (
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// Trail compares the records of a lineage's steps with each other while they are read: every result with its batch, and with the
// result of the step before. The zero value is ready.
type Trail struct {
	batches map[int]string // digests
	seals   map[int]string // of results
	// unreadable are the steps of results whose seal is not known.
	unreadable map[int]bool
}

// Batch takes the reference of the batch of a step as it was read.
func (t *Trail) Batch(step int, ref artifact.Ref) {
	if t.batches == nil {
		t.batches = map[int]string{}
	}
	t.batches[step] = ref.Digest
}

// Unreadable takes the step of a result that is there and cannot be read, for a reader that goes on: what follows it is not to blame.
func (t *Trail) Unreadable(step int) {
	if t.unreadable == nil {
		t.unreadable = map[int]bool{}
	}
	t.unreadable[step] = true
}

// Result checks the result that was read from the object name, whose seal is seal, or empty. Results come in the order of their steps, from the
// first of the lineage on; batches that were not taken, and results that are Unreadable, decide nothing. Errors: Corrupt.
func (t *Trail) Result(name string, step int, r Result, seal string) error {
	const op = "record.Trail"
	hint := "restore batches and results of the lineage from one copy of the store"
	before, ok := t.seals[step-1]
	if t.seals == nil {
		t.seals = map[int]string{}
	}
	t.seals[step] = seal // also of a wrong one: what follows it is not to blame
	if r.Step != step {
		return fault.New(fault.Corrupt, op, "%s holds the result of step %d", name, r.Step).WithHint("%s", hint)
	}
	if got, ok := t.batches[step]; ok && got != r.BatchDigest {
		return fault.New(fault.Corrupt, op, "step %d: the sealed batch has digest %.12s, %s was trained from one with %.12s", step, got, name, r.BatchDigest).
			WithHint("%s", hint)
	}
	switch {
	case r.Previous == "", t.unreadable[step-1]:
	case !ok:
		return fault.New(fault.Corrupt, op, "step %d: the result of step %d is gone, which %s follows", step, step-1, name).WithHint("%s", hint)
	case ok && before != r.Previous:
		return fault.New(fault.Corrupt, op, "step %d: the result of step %d has the seal %.12s, %s follows one with %.12s", step, step-1, orNone(before), name, r.Previous).
			WithHint("%s", hint)
	}
	return nil
}

func orNone(seal string) string {
	if seal == "" {
		return "(none)"
	}
	return seal
}
