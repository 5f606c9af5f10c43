package learner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/record"
)

// more seals batches up to a step.
func (b *bench) more(t *testing.T, last int) {
	t.Helper()
	for step := len(b.refs) + 1; step <= last; step++ {
		b.refs[step] = b.seal(t, step, step)
	}
}

// follow follows until the host is level with what is recorded, and returns the number of passes that changed its state.
func follow(t *testing.T, h *learner.Host) (learner.Following, int) {
	t.Helper()
	for n := 1; ; n++ {
		f, err := h.Follow(t.Context(), layout)
		if err != nil {
			t.Fatalf("Follow: %v", err)
		}
		if f.Level || f.Leading || !f.Held {
			return f, n
		}
	}
}

// tree is everything below the store's directory with its digest, events apart.
func (b *bench) tree(t *testing.T) map[string]string {
	t.Helper()
	root, err := b.store.Path("runs")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		out[strings.TrimPrefix(path, root)] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func save(t *testing.T, h *learner.Host, step, epoch int) {
	t.Helper()
	if _, _, err := h.Save(t.Context(), layout, step, epoch); err != nil {
		t.Fatalf("Save of step %d: %v", step, err)
	}
}

// A standby reads only, whatever it meets: the store is byte by byte the same afterwards.
func TestFollow_writesNothing(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, b *bench, dir string){
		"sound": func(*testing.T, *bench, string) {},
		"corrupt": func(t *testing.T, _ *bench, dir string) {
			t.Helper()
			flip(t, filepath.Join(dir, "000001", checkpoint.MasterFile))
		},
		"no checkpoint":     func(t *testing.T, _ *bench, dir string) { t.Helper(); removeAll(t, dir) },
		"an unsealed batch": func(t *testing.T, b *bench, _ string) { t.Helper(); removeAll(t, path(t, b, layout.Batch(2))) },
		"another state": func(t *testing.T, b *bench, _ string) {
			t.Helper()
			b.edit(t, 2, func(r *record.Result) { r.StateDigest = artifact.Digest(nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			h := b.host(t, "a")
			epoch := b.init(t, h)
			b.update(t, h, 1, epoch)
			save(t, h, 1, epoch)
			b.update(t, h, 2, epoch)
			damage(t, b, path(t, b, layout.Checkpoints()))
			before := b.tree(t)
			s := b.host(t, "standby")
			var failed error
			for range 6 {
				_, err := s.Follow(t.Context(), layout)
				if failed == nil {
					failed = err
				}
			}
			if d := cmp.Diff(before, b.tree(t)); d != "" {
				t.Errorf("the store (-before +after):\n%s", d)
			}
			if wantErr := name == "an unsealed batch" || name == "another state"; (failed != nil) != wantErr {
				t.Errorf("got error %v, want one: %v", failed, wantErr)
			}
		})
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func path(t *testing.T, b *bench, name string) string {
	t.Helper()
	p, err := b.store.Path(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// edit changes a recorded result.
func (b *bench) edit(t *testing.T, step int, change func(*record.Result)) {
	t.Helper()
	var r record.Result
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(step), &r); err != nil {
		t.Fatal(err)
	}
	change(&r)
	if _, err := artifact.ReplaceJSON(t.Context(), b.store, layout.Result(step), r); err != nil {
		t.Fatal(err)
	}
}

func TestFollow_trainsNoStepWithoutAResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	s := b.host(t, "standby")
	if f, err := s.Follow(t.Context(), layout); err != nil || f != (learner.Following{}) {
		t.Errorf("before the run began: got %+v, %v; want nothing", f, err)
	}
	epoch := b.init(t, h)
	for done := range 4 { // all three batches are sealed from the start
		if done > 0 {
			b.update(t, h, done, epoch)
		}
		f, _ := follow(t, s)
		if want := (learner.Following{Held: true, Step: done, Level: true}); f != want {
			t.Errorf("after %d results: got %+v, want %+v", done, f, want)
		}
	}
	if len(b.kinds()) != 0 {
		t.Errorf("notes %v, want none", b.kinds())
	}
}

// However long ago the last checkpoint was, the standby that takes over replays nothing, and goes on with the same bits.
func TestFollow_takeOverReplaysNothing(t *testing.T) {
	t.Parallel()
	const interval, first = 50, 2 // steps between checkpoints, step of the last one
	calm := newBench(t)
	calm.more(t, first+interval)
	var want []string
	h := calm.host(t, "a")
	epoch := calm.init(t, h)
	for step := 1; step <= first+interval; step++ {
		want = append(want, calm.update(t, h, step, epoch).StateDigest)
	}
	for _, since := range []int{1, 25, 49} {
		for _, recorded := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d steps, recorded %v", since, recorded), func(t *testing.T) {
				t.Parallel()
				at := first + since
				b := newBench(t)
				b.more(t, min(at+3, first+interval))
				h, s := b.host(t, "a"), b.host(t, "standby")
				epoch := b.init(t, h)
				for step := 1; step < at; step++ {
					b.update(t, h, step, epoch)
					if step == first {
						save(t, h, step, epoch)
					}
					follow(t, s)
				}
				if recorded { // the trainer dies before its answer arrives
					b.update(t, h, at, epoch)
				} else { // it dies before it can write
					b.store.fail[layout.Result(at)] = true
					if _, err := h.Update(t.Context(), layout, at, b.refs[at], epoch); !fault.Is(err, fault.Busy) {
						t.Fatalf("got %v, want Busy", err)
					}
				}
				now := acquire(t, s)
				out := b.update(t, s, at, now)
				if out.Restored || out.Replayed > 0 || out.StateDigest != want[at-1] {
					t.Errorf("step %d: got %+v, want it without restore and replay, state %.12s", at, out, want[at-1])
				}
				for step := at + 1; step <= min(at+3, first+interval); step++ {
					if out := b.update(t, s, step, now); out.Restored || out.Replayed > 0 || out.StateDigest != want[step-1] {
						t.Fatalf("step %d: restored %v, %d replayed, state %.12s; want none and %.12s", step, out.Restored, out.Replayed, out.StateDigest, want[step-1])
					}
				}
				if _, err := h.Update(t.Context(), layout, at, b.refs[at], epoch); !fault.Is(err, fault.Stale) {
					t.Errorf("the old trainer comes back: got %v, want Stale", err)
				}
				if slices.Contains(b.kinds(), "replay_mismatch") {
					t.Error("an alarm was raised")
				}
			})
		}
	}
}

// A standby that has one step to go when it is acquired replays that one.
func TestFollow_takeOverWhileBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, s := b.host(t, "a"), b.host(t, "standby")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	follow(t, s)
	want := b.update(t, h, 2, epoch).StateDigest
	out := b.update(t, s, 3, acquire(t, s))
	if out.Restored || out.Replayed != 1 || out.Result.Replayed != 1 {
		t.Errorf("got %+v, want 1 replayed and nothing restored", out)
	}
	if got := b.recordedState(t, 2); got != want {
		t.Errorf("step 2 has state %.12s, want %.12s untouched", got, want)
	}
}

func (b *bench) recordedState(t *testing.T, step int) string {
	t.Helper()
	var r record.Result
	if _, err := artifact.GetJSON(t.Context(), b.store, layout.Result(step), &r); err != nil {
		t.Fatal(err)
	}
	return r.StateDigest
}

// How much of the past a standby reads: the newest checkpoint that verifies and what came after it.
func TestFollow_beginsAtTheNewestGoodCheckpoint(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage []int // checkpoints of 2, 4, 6 that do not verify
		passes int   // one restore, then one a step up to 7; the first restore brings it level at once if there is nothing to replay
		notes  []string
	}{
		"all good":    {nil, 2, nil},
		"newest bad":  {[]int{6}, 4, []string{"Corrupt"}},
		"two bad":     {[]int{4, 6}, 6, []string{"Corrupt", "Corrupt"}},
		"all bad":     {[]int{0, 2, 4, 6}, 8, []string{"Corrupt", "Corrupt", "Corrupt", "Corrupt"}},
		"an old one":  {[]int{2}, 2, nil},
		"none at all": {[]int{-1}, 8, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.more(t, 8)
			h := b.host(t, "a")
			epoch := b.init(t, h)
			for step := 1; step <= 7; step++ {
				b.update(t, h, step, epoch)
				if step%2 == 0 {
					save(t, h, step, epoch)
				}
			}
			for _, s := range tt.damage {
				if s < 0 {
					removeAll(t, path(t, b, layout.Checkpoints()))
				} else {
					flip(t, filepath.Join(path(t, b, layout.Checkpoint(s)), checkpoint.MasterFile))
				}
			}
			s := b.host(t, "late")
			f, passes := follow(t, s)
			if f.Step != 7 || passes != tt.passes {
				t.Errorf("got step %d after %d passes, want 7 after %d", f.Step, passes, tt.passes)
			}
			if d := cmp.Diff(tt.notes, b.kinds()); d != "" {
				t.Errorf("notes (-want +got):\n%s", d)
			}
			want := b.update(t, h, 8, epoch).StateDigest
			if err := b.store.Remove(t.Context(), layout.Result(8)); err != nil {
				t.Fatal(err)
			}
			if out := b.update(t, s, 8, acquire(t, s)); out.StateDigest != want || out.Restored {
				t.Errorf("step 8: state %.12s, restored %v; want %.12s from the state held", out.StateDigest, out.Restored, want)
			}
		})
	}
}

// A standby that has fallen behind a new checkpoint loads it; one that has one step to go replays that; a bad checkpoint does not
// cost it the state that it holds.
func TestFollow_jumpsToANewCheckpoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last   int // step of the checkpoint, and the newest result
		damage bool
		passes int
	}{
		"one step":  {2, false, 1},
		"far":       {7, false, 1},
		"far, bad":  {7, true, 6},
		"two steps": {3, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.more(t, 7)
			h, s := b.host(t, "a"), b.host(t, "standby")
			epoch := b.init(t, h)
			b.update(t, h, 1, epoch)
			follow(t, s)
			for step := 2; step <= tt.last; step++ {
				b.update(t, h, step, epoch)
			}
			save(t, h, tt.last, epoch)
			if tt.damage {
				flip(t, filepath.Join(path(t, b, layout.Checkpoint(tt.last)), checkpoint.MasterFile))
			}
			if f, passes := follow(t, s); f.Step != tt.last || passes != tt.passes {
				t.Errorf("got step %d after %d passes, want %d after %d", f.Step, passes, tt.last, tt.passes)
			}
			if got, want := b.digest(t, s, tt.last, acquire(t, s)), b.recordedState(t, tt.last); got != want {
				t.Errorf("got state %.12s, want %.12s", got, want)
			}
		})
	}
}

// A step that gives another state raises the alarm and ends the following of this lineage, not of others.
func TestFollow_differenceEndsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	s := b.host(t, "standby")
	follow(t, s)
	b.update(t, h, 1, epoch)
	b.edit(t, 1, func(r *record.Result) { r.StateDigest = artifact.Digest(nil) })
	for round := range 3 {
		if f, err := s.Follow(t.Context(), layout); !fault.Is(err, fault.Corrupt) || f.Held {
			t.Errorf("round %d: got %+v, %v; want Corrupt", round, f, err)
		}
	}
	if s.Holds(layout) {
		t.Error("the state is still held, want it dropped")
	}
	if d := cmp.Diff([]string{record.ReplayMismatch}, b.kinds()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	other := record.Layout{Run: "other", Lineage: "l0"}
	if _, err := h.Init(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Follow(t.Context(), other); err != nil || !f.Level {
		t.Errorf("another lineage: got %+v, %v; want it followed", f, err)
	}
}

// The trainer of a lineage does not follow it, nor another one, until it is replaced or released; then it begins anew.
func TestFollow_ofAHostThatWorks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, s := b.host(t, "a"), b.host(t, "standby")
	epoch := b.init(t, h)
	other := record.Layout{Run: "other", Lineage: "l1"}
	if _, err := b.host(t, "c").Init(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	b.update(t, h, 1, epoch)
	b.store.fail[layout.Result(2)] = true // the state of h is one that was never recorded
	if _, err := h.Update(t.Context(), layout, 2, b.refs[2], epoch); !fault.Is(err, fault.Busy) {
		t.Fatalf("got %v, want Busy", err)
	}
	if f, err := h.Follow(t.Context(), layout); err != nil || f != (learner.Following{Leading: true}) || h.Leading() != layout {
		t.Errorf("its own lineage: got %+v, %v, leading %v", f, err, h.Leading())
	}
	if _, err := h.Follow(t.Context(), other); !fault.Is(err, fault.Busy) {
		t.Errorf("another lineage: got %v, want Busy", err)
	}
	follow(t, s)
	now := acquire(t, s)
	if f, _ := follow(t, h); f.Step != 1 || !f.Level || h.Leading() != (record.Layout{}) {
		t.Errorf("after it was replaced: got %+v, leading %v; want the recorded step 1 only", f, h.Leading())
	}
	b.update(t, s, 2, now)
	if f, _ := follow(t, h); f.Step != 2 {
		t.Errorf("got %+v, want step 2", f)
	}
	s.Release(layout)
	if f, err := s.Follow(t.Context(), other); err != nil || !f.Held {
		t.Errorf("another lineage after a release: got %+v, %v", f, err)
	}
}

// A restarted trainer that still holds the fence may follow, and goes on as the trainer with the first request.
func TestFollow_ofARestartedTrainer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	b.update(t, h, 2, epoch)
	h = b.host(t, "a")
	if h.Holds(layout) {
		t.Error("a fresh host holds a state")
	}
	follow(t, h)
	if !h.Holds(layout) {
		t.Error("no state is held after following")
	}
	if out := b.update(t, h, 3, epoch); out.Restored || out.Replayed != 0 || h.Leading() != layout {
		t.Errorf("got %+v, leading %v; want step 3 without replay", out, h.Leading())
	}
}

// What a standby cannot begin with now, it may a little later.
func TestFollow_goesOnAfterAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.host(t, "a")
	epoch := b.init(t, h)
	b.update(t, h, 1, epoch)
	removeAll(t, path(t, b, layout.Checkpoints()))
	begin := b.begin
	b.begin = func(record.Layout) (int, *engine.State, error) { return 0, nil, fault.New(fault.Invalid, "t", "gone") }
	s := b.host(t, "standby")
	if _, err := s.Follow(t.Context(), layout); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v, want NotFound", err)
	}
	b.begin = begin
	if f, _ := follow(t, s); f.Step != 1 {
		t.Errorf("got %+v, want step 1", f)
	}
}
