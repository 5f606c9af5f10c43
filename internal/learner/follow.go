package learner

import (
	"context"
	"fmt"
	"slices"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// lastStep is the largest step that a name can hold.
const lastStep = 999_999

// Following says where a host stands that follows a lineage.
type Following struct {
	// Leading: this host works on the lineage as its trainer, so there is nothing to follow. The other fields are zero then.
	Leading bool
	// Held: a state is held, of Step.
	Held bool
	Step int
	// Level: no later step has a result, so an update can go on from the state held.
	Level bool
}

// Follow brings the state held closer to the newest step that has a result, by one restore or one replay, so that this host can
// take the lineage over without either. It only reads what the lineage's trainer wrote: no weights, result, fence or checkpoint
// is written, no step without a result is trained, and a bad checkpoint is reported but left where it is.
//
// The newest checkpoint is taken first, and again when the state falls more than one step behind it. Each replayed step is
// compared with its record; a difference raises the same alarm as in Update, and the lineage is not followed again by
// this process. A lineage without a fence has not begun, which is no error.
//
// Errors: Busy (this process works on another lineage as its trainer), Corrupt (a difference, or a batch that is not what was
// trained), NotFound (nothing to begin with), Numeric, and the store's. After an error the next call goes on, or restores.
func (h *Host) Follow(ctx context.Context, l record.Layout) (Following, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var f record.Fence
	if _, err := artifact.GetJSON(ctx, h.opts.Store, l.Fence(), &f); fault.Is(err, fault.NotFound) {
		return Following{}, nil
	} else if err != nil {
		return Following{}, err
	}
	switch active := h.Leading(); {
	case active == l && f.Holder == h.opts.Name:
		return Following{Leading: true}, nil
	case active == l: // fenced off; the state may hold a step that was never recorded
		h.Release(l)
		h.forget()
	case active != record.Layout{}:
		return Following{}, fault.New(fault.Busy, "learner.Follow", "this trainer works on run %s", active.Run)
	}
	if h.doubted == l {
		return Following{}, fault.New(fault.Corrupt, "learner.Follow", "run %s is not followed: a step gave another state than was recorded", l.Run).
			WithHint("compare the builds and the machines of the workers, then start this one again")
	}
	h.adopt(l)
	if err := h.approach(ctx); err != nil {
		return Following{}, err
	}
	next, err := h.opts.Store.Exists(ctx, l.Result(h.step+1))
	return Following{Held: true, Step: h.step, Level: !next}, err
}

// approach restores if no state is held or a checkpoint lies more than one step ahead, else replays the next step if it has a result.
func (h *Host) approach(ctx context.Context) error {
	if h.trainer == nil {
		return h.restoreAhead(ctx, -1)
	}
	recorded, err := h.recorded(ctx, h.step+1)
	if err != nil || recorded == nil {
		return err
	}
	if err := h.restoreAhead(ctx, h.step+1); err != nil || h.trainer == nil || h.step >= recorded.Step {
		return err
	}
	equal, err := h.replay(ctx, recorded.Step)
	if err == nil && !equal {
		h.doubted = h.layout
		h.forget()
		return fault.New(fault.Corrupt, "learner.Follow", "step %d of run %s gave another state than was recorded", recorded.Step, h.layout.Run)
	}
	return err
}

// restoreAhead loads the newest checkpoint after step that verifies. Without one the state held stays, and a host that holds
// none takes what the lineage began with. Nothing is written.
func (h *Host) restoreAhead(ctx context.Context, step int) error {
	steps, err := Checkpoints(ctx, h.opts.Store, h.layout)
	if err != nil {
		return err
	}
	for _, s := range slices.Backward(steps) {
		if s <= step {
			break
		}
		if h.trainer != nil {
			if h.told[s] {
				continue
			}
			if err := h.verify(ctx, h.layout, s); err != nil { // before the state held is given up
				if err := h.passOver(ctx, s, err); err != nil {
					return err
				}
				continue
			}
			h.forget()
		}
		err := h.load(ctx, s)
		if err == nil {
			return nil
		}
		if err := h.passOver(ctx, s, err); err != nil {
			return err
		}
	}
	if h.trainer != nil {
		return nil
	}
	_, err = h.begin(ctx, lastStep)
	return err
}

// passOver reports a checkpoint that does not verify, once. It returns err if that is another fault.
func (h *Host) passOver(ctx context.Context, step int, err error) error {
	if k := fault.KindOf(err); k != fault.Corrupt && k != fault.NotFound {
		return err
	}
	if h.told[step] {
		return nil
	}
	if h.told == nil {
		h.told = map[int]bool{}
	}
	h.told[step] = true
	if fault.Is(err, fault.NotFound) { // retention was quicker
		return nil
	}
	h.opts.Note(ctx, h.layout, record.Event{
		Kind: string(fault.Corrupt), Where: h.opts.Name, Step: step,
		Message: fmt.Sprintf("checkpoint %d does not verify, a standby passed it over: %v", step, err),
	})
	return nil
}

// Leading returns the lineage that this process works on as its trainer: the one that it last acquired or did work for. It is zero
// after a start, and after Release. Another host may hold the fence by now.
func (h *Host) Leading() record.Layout {
	h.activeMu.Lock()
	defer h.activeMu.Unlock()
	return h.active
}

// Release ends Leading for a lineage that has ended or went to another trainer. The state is kept.
func (h *Host) Release(l record.Layout) {
	h.activeMu.Lock()
	defer h.activeMu.Unlock()
	if h.active == l {
		h.active = record.Layout{}
	}
}

// Holds reports whether this process holds a state of the lineage, or acquired it. If not, an update begins with a restore. It does not
// wait for other calls.
func (h *Host) Holds(l record.Layout) bool {
	h.activeMu.Lock()
	defer h.activeMu.Unlock()
	return h.active == l || h.held == l
}
