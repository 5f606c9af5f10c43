package learner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
)

// device is a trainer on a device of its own: memory for so many tokens of a micro-batch, and for every number of tokens an algorithm, measured once,
// that shows in the results.
type device struct {
	engine.Trainer
	memory int // tokens; 0: any number
	speed  int // the algorithm that is fastest here; 0: there is only one
	chosen map[string]int
	plans  *[][][]int // of updates that were applied
}

func (d *device) Update(ctx context.Context, b engine.Batch) (engine.StepMetrics, error) {
	tokens := 0
	for _, m := range b.Plan.MicroBatches {
		size := 0
		for _, i := range m {
			size += len(b.Sequences[i].Tokens)
		}
		if d.memory > 0 && size > d.memory {
			return engine.StepMetrics{}, fault.New(fault.Exhausted, "device", "%d tokens", size)
		}
		tokens += size
	}
	if d.speed > 0 {
		shape := fmt.Sprint(tokens, len(b.Plan.MicroBatches))
		if d.chosen[shape] == 0 {
			d.chosen[shape] = d.speed
		}
		b.Optim.LearningRate *= 1 + float64(d.chosen[shape])/100
	}
	out, err := d.Trainer.Update(ctx, b)
	if err == nil {
		*d.plans = append(*d.plans, b.Plan.MicroBatches)
	}
	return out, err
}

func (d *device) Choices() []byte {
	if len(d.chosen) == 0 {
		return nil
	}
	data, err := json.Marshal(d.chosen)
	if err != nil {
		panic(err)
	}
	return data
}

func (d *device) SetChoices(data []byte) error {
	var chosen map[string]int
	if err := json.Unmarshal(data, &chosen); err != nil {
		return fault.New(fault.Corrupt, "device", "%w", err)
	}
	maps.Copy(d.chosen, chosen)
	return nil
}

// on is a host whose trainer runs on a device, and the plans of its updates.
func (b *bench) on(t *testing.T, name string, memory, speed int) (*learner.Host, *[][][]int) {
	t.Helper()
	plans := &[][][]int{}
	h := learner.New(learner.Options{
		Store: b.store, Name: name, NewSampler: ref.NewSampler,
		NewTrainer: func(c model.Config, w *model.Weights) (engine.Trainer, error) {
			r, err := ref.NewTrainer(c, w)
			return &device{Trainer: r, memory: memory, speed: speed, chosen: map[string]int{}, plans: plans}, err
		},
		Initial: func(_ context.Context, l record.Layout) (int, *engine.State, error) { return b.begin(l) },
		Note: func(_ context.Context, _ record.Layout, e record.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.notes = append(b.notes, e)
		},
	})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return h, plans
}

var (
	whole   = [][]int{{0, 1}} // 10 tokens
	divided = [][]int{{0}, {1}}
)

// A micro-batch that does not fit is divided, the plan stands in the result, and whoever replays the step takes that plan.
func TestUpdate_outOfMemoryIsASmallerPlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, plans := b.on(t, "small", 7, 0)
	epoch := b.init(t, h)
	b.store.fail[layout.Result(1)] = true
	if _, err := h.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Busy) {
		t.Fatalf("with a full disk: %v, want Busy", err)
	}
	for step := 1; step <= 2; step++ {
		out := b.update(t, h, step, epoch)
		if out.Plan == nil || !cmp.Equal(out.Plan.MicroBatches, divided) {
			t.Errorf("step %d has the plan %v, want %v", step, out.Plan, divided)
		}
	}
	if got := b.kinds(); !slices.Equal(got, []string{string(fault.Exhausted)}) { // step 2 knows already
		t.Errorf("events %q, want one of the kind Exhausted", got)
	}
	if !cmp.Equal(*plans, [][][]int{divided, divided}) {
		t.Errorf("computed %v, want each step once", *plans)
	}
	want := b.digest(t, h, 2, epoch)

	large, plans := b.on(t, "large", 0, 0)
	epoch = acquire(t, large)
	if got := b.digest(t, large, 2, epoch); got != want || !cmp.Equal(*plans, [][][]int{divided, divided}) {
		t.Errorf("replay by plans %v gives %.12s, want %.12s", *plans, got, want)
	}
	if out := b.update(t, large, 3, epoch); out.Plan != nil || !cmp.Equal((*plans)[2], whole) {
		t.Errorf("a new step on the large device: plan %v in the result, %v computed; want the sealed one", out.Plan, (*plans)[2])
	}
	if slices.Contains(b.kinds(), record.ReplayMismatch) {
		t.Errorf("events %q: a replay differed", b.kinds())
	}

	// What was computed in one piece must not be replayed in two: the bits would be others.
	back, plans := b.on(t, "small again", 7, 0)
	epoch = acquire(t, back)
	if _, _, err := back.Reach(t.Context(), layout, 3, epoch); !fault.Is(err, fault.Exhausted) || fault.HintOf(err) == "" || len(*plans) != 2 {
		t.Errorf("replay of a large step: %v after %v, want Exhausted with a hint after two steps", err, *plans)
	}
}

func TestUpdate_aSequenceThatDoesNotFitIsExhausted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, plans := b.on(t, "tiny", 4, 0)
	epoch := b.init(t, h)
	_, err := h.Update(t.Context(), layout, 1, b.refs[1], epoch)
	if !fault.Is(err, fault.Exhausted) || fault.HintOf(err) == "" || len(*plans) != 0 {
		t.Errorf("got %v and %d updates, want Exhausted with a hint", err, len(*plans))
	}
	if ok, err := b.store.Exists(t.Context(), layout.Result(1)); ok || err != nil {
		t.Errorf("there is a result: %v, %v", ok, err)
	}
}

// A choice is made once in a lineage: another device, which measures something else, computes the same bits.
func TestUpdate_choicesGoWithTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, _ := b.on(t, "one", 0, 1)
	epoch := b.init(t, one)
	first := b.update(t, one, 1, epoch)
	b.update(t, one, 2, epoch)
	want := b.digest(t, one, 2, epoch)
	if first.Choices == nil {
		t.Fatal("the result names no choices")
	}

	two, _ := b.on(t, "two", 0, 2)
	epoch = acquire(t, two)
	if got := b.digest(t, two, 2, epoch); got != want || len(b.kinds()) == 0 || slices.Contains(b.kinds(), record.ReplayMismatch) {
		t.Errorf("replayed to %.12s, want %.12s; events %q", got, want, b.kinds())
	}
	third := b.update(t, two, 3, epoch)
	if third.Choices == nil || *third.Choices != *first.Choices {
		t.Errorf("step 3 has the choices %v, want those of step 1, %v", third.Choices, first.Choices)
	}

	// It goes on from a checkpoint, with no step to replay.
	if _, _, err := two.Save(t.Context(), layout, 2, epoch); err != nil {
		t.Fatal(err)
	}
	three, _ := b.on(t, "three", 0, 3)
	if f, err := three.Follow(t.Context(), layout); err != nil || f.Step != 2 {
		t.Fatalf("followed to %+v, %v; want step 2", f, err)
	}
	if f, err := three.Follow(t.Context(), layout); err != nil || f.Step != 3 || slices.Contains(b.kinds(), record.ReplayMismatch) {
		t.Errorf("followed to %+v, %v, events %q; want step 3 with equal bits", f, err, b.kinds())
	}

	// Lost choices are no reason to compute other bits.
	if err := b.store.Store.Remove(t.Context(), first.Choices.Name); err != nil {
		t.Fatal(err)
	}
	four, _ := b.on(t, "four", 0, 4)
	epoch = acquire(t, four)
	if _, _, err := four.Reach(t.Context(), layout, 3, epoch); !fault.Is(err, fault.NotFound) {
		t.Errorf("without the choices: %v, want NotFound", err)
	}
}

func TestWithin_dividesInOrderAndLosesNothing(t *testing.T) {
	t.Parallel()
	lengths := []int{4, 4, 4, 9, 1, 2, 3}
	sealed := engine.Plan{MicroBatches: [][]int{{0, 1, 2}, {3, 4}, {6, 5}}}
	for budget, want := range map[int][][]int{
		100: {{0, 1, 2}, {3, 4}, {6, 5}},
		12:  {{0, 1, 2}, {3, 4}, {6, 5}},
		9:   {{0, 1}, {2}, {3}, {4}, {6, 5}},
		4:   {{0}, {1}, {2}, {3}, {4}, {6}, {5}},
		1:   {{0}, {1}, {2}, {3}, {4}, {6}, {5}},
	} {
		if d := cmp.Diff(want, sealed.Within(budget, lengths).MicroBatches); d != "" {
			t.Errorf("budget %d (-want +got):\n%s", budget, d)
		}
	}
	if got := sealed.Divisible(lengths); got != 12 {
		t.Errorf("largest that can be divided: %d tokens, want 12", got)
	}
	if got := sealed.Within(1, lengths).Divisible(lengths); got != 0 {
		t.Errorf("single sequences: %d, want 0", got)
	}
}

// A trainer that dies between the weights of a step and its result leaves weights that cannot be replaced: whoever takes over computes the step in
// the same way, on a device that would do it otherwise, or refuses.
func TestUpdate_aStepWithoutResultIsComputedAgainTheSameWay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		memory, speed           int // of the trainer that dies
		memoryAfter, speedAfter int
		refused                 bool
	}{
		"divided, then room":  {7, 0, 0, 0, false},
		"room, then divided":  {0, 0, 7, 0, true},
		"another choice":      {0, 1, 0, 2, false},
		"divided and choices": {7, 1, 0, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			one, _ := b.on(t, "one", tt.memory, tt.speed)
			epoch := b.init(t, one)
			b.store.fail[layout.Result(1)] = true
			if _, err := one.Update(t.Context(), layout, 1, b.refs[1], epoch); !fault.Is(err, fault.Busy) {
				t.Fatalf("with a full disk: %v, want Busy", err)
			}
			two, _ := b.on(t, "two", tt.memoryAfter, tt.speedAfter)
			out, err := two.Update(t.Context(), layout, 1, b.refs[1], acquire(t, two))
			if tt.refused {
				if !fault.Is(err, fault.Exhausted) || fault.HintOf(err) == "" {
					t.Errorf("got %v, want Exhausted with a hint", err)
				}
				return
			}
			if err != nil || (out.Plan != nil) != (tt.memory > 0) || (out.Choices != nil) != (tt.speed > 0) {
				t.Errorf("plan %v, choices %v, %v; want those of the first trainer", out.Plan, out.Choices, err)
			}
		})
	}
}
