// Package gpuwatch decides when a GPU can no longer be trusted: after a fault of its hardware that the driver reports (an Xid), an error of
// its memory that was not corrected, or when it is gone. The values that it computes after that may be wrong without any other sign.
//
// It knows no library: internal/cudart reads NVML for it.
package gpuwatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// Event is something that a GPU reported.
type Event struct {
	// Xid is the number of the driver's message; 0 for none.
	Xid uint64
	// Uncorrected says that an error of memory was found and not corrected.
	Uncorrected bool
}

// Source is the health of one GPU.
type Source interface {
	// Wait returns the next event; ok is false if none came within the time given. Errors: Lost (the GPU is gone), others as they come.
	Wait(limit time.Duration) (e Event, ok bool, err error)
	// Uncorrected counts errors of memory that were not corrected since the driver was loaded; -1 if the GPU does not say.
	Uncorrected() (int64, error)
}

// Interval is how often the counter of memory errors is read when no event comes. A watch ends within it.
const Interval = 2 * time.Second

// Patience is the number of failed readings in a row after which the GPU counts as gone.
const Patience = 30

// byPrograms are Xids that the program on the GPU causes, any program: a wrong address, a kernel that was stopped, a channel that was
// cleaned up. If it was ours, its next call fails, and the engine says so. Numbers and causes are those of NVIDIA's list of Xid errors.
var byPrograms = []uint64{13, 31, 43, 45, 69}

// notes are Xids that tell of a repair: a row of memory was remapped or a page retired (63), many corrected errors (92).
var notes = []uint64{63, 92}

// Watch returns when the GPU is lost, with an error of kind Lost, or when ctx ends, with nil. name is for messages; tell hears of what is no
// reason to give the GPU up.
func Watch(ctx context.Context, s Source, name string, tell func(message string)) error {
	const op = "gpuwatch.Watch"
	lost := func(format string, args ...any) error {
		return fault.New(fault.Lost, op, "%s: "+format, append([]any{name}, args...)...).
			WithHint("read the kernel log (dmesg | grep Xid) and `nvidia-smi -q`; reset or replace the GPU before this worker starts again")
	}
	before, failed := int64(-1), 0
	for ctx.Err() == nil {
		now, err := s.Uncorrected()
		var e Event
		var ok bool
		if err == nil {
			if before >= 0 && now > before {
				return lost("%d errors of memory were not corrected", now-before)
			}
			before = max(before, now)
			e, ok, err = s.Wait(Interval)
		}
		switch {
		case fault.Is(err, fault.Lost):
			return lost("%w", err)
		case err != nil:
			failed++
			if failed == Patience {
				return lost("its health could not be read %d times in a row: %w", failed, err)
			}
			tell(fmt.Sprintf("%s: its health could not be read: %v", name, err))
			continue
		}
		failed = 0
		switch {
		case !ok:
		case e.Uncorrected:
			return lost("an error of memory was not corrected")
		case e.Xid == 0:
		case slices.Contains(byPrograms, e.Xid):
			tell(fmt.Sprintf("%s: a program on it failed, Xid %d", name, e.Xid))
		case slices.Contains(notes, e.Xid):
			tell(fmt.Sprintf("%s: it repaired its memory, Xid %d", name, e.Xid))
		default:
			return lost("Xid %d", e.Xid)
		}
	}
	return nil
}
