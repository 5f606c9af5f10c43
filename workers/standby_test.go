package workers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/record"
)

// stage plays the host, the server and the queues of a standby, and remembers what happened.
type stage struct {
	*standby
	clock     time.Time
	open      map[string]bool // workflow ids
	acquiring map[string]bool // runs
	bad       map[string]error
	state     map[string]learner.Following // of runs
	errs      map[string]error             // of following runs
	leading   record.Layout
	fenced    bool // another host holds the fence of leading
	heard     map[string]bool
	released  []string
	opened    []string // queues, in order
}

func newStage() *stage {
	g := &stage{
		clock: time.Unix(1e9, 0), open: map[string]bool{}, acquiring: map[string]bool{}, bad: map[string]error{},
		state: map[string]learner.Following{}, errs: map[string]error{}, heard: map[string]bool{},
	}
	g.standby = &standby{
		host: g, server: g, name: "s", now: func() time.Time { return g.clock }, log: zap.NewNop(),
		release: func(l record.Layout) {
			g.released = append(g.released, l.Run)
			if g.leading == l {
				g.leading = record.Layout{}
			}
		},
		find: func(_ context.Context, run string) (record.Layout, error) { return lay(run), g.bad[run] },
		listen: func(queue string) (func(), error) {
			g.heard[queue] = true
			g.opened = append(g.opened, queue)
			return func() { delete(g.heard, queue) }, nil
		},
	}
	return g
}

func lay(scope string) record.Layout { return contract.ParseScope(scope).Layout() }

func (g *stage) Follow(_ context.Context, l record.Layout) (learner.Following, error) {
	if g.leading == l && !g.fenced {
		return learner.Following{Leading: true}, nil
	}
	if g.leading == l {
		g.leading, g.fenced = record.Layout{}, false
	}
	return g.state[l.Run], g.errs[l.Run]
}
func (g *stage) Leading() record.Layout { return g.leading }
func (g *stage) Open(_ context.Context, id string) (bool, error) {
	return g.open[id], nil
}

func (g *stage) Loops(context.Context) (runs []string, err error) {
	for id, open := range g.open {
		if run, ok := strings.CutSuffix(id, "/train"); ok && open {
			runs = append(runs, run)
		}
	}
	return runs, nil
}

func (g *stage) Acquiring(_ context.Context, run string) (bool, error) { return g.acquiring[run], nil }

// start opens a run with its loop.
func (g *stage) start(run string, f learner.Following) {
	g.open[run], g.open[contract.LoopID(run)], g.state[run] = true, true, f
}

// passes makes n passes, each as long after the one before as a question to the server allows.
func (g *stage) passes(t *testing.T, n int) {
	t.Helper()
	for range n {
		g.clock = g.clock.Add(askPause)
		if d := g.pass(t.Context()); d < 0 || d > askPause {
			t.Errorf("a pause of %s, want between 0 and %s", d, askPause)
		}
	}
}

func (g *stage) check(t *testing.T, when string, queues ...string) {
	t.Helper()
	var got []string
	for q := range g.heard {
		got = append(got, q)
	}
	slices.Sort(got)
	slices.Sort(queues)
	if !slices.Equal(got, queues) {
		t.Errorf("%s: it listens to %q, want %q", when, got, queues)
	}
}

var (
	level  = learner.Following{Held: true, Step: 4, Level: true}
	behind = learner.Following{Held: true, Step: 2}
)

func TestStandby_listensOnceItsStateIsLevel(t *testing.T) {
	t.Parallel()
	g := newStage()
	g.passes(t, 2)
	g.check(t, "without a run")
	g.start("r", learner.Following{})
	g.passes(t, 2)
	g.check(t, "before the run has a fence")
	g.state["r"] = behind
	g.passes(t, 3)
	g.check(t, "while it catches up")
	if err := g.accepts("r"); !fault.Is(err, fault.Busy) {
		t.Errorf("an acquisition while it catches up: got %v, want Busy", err)
	}
	g.state["r"] = level
	g.passes(t, 1)
	g.check(t, "level", contract.StandbyQueue("r"))
	g.state["r"] = behind // a new result: it is replayed soon
	g.passes(t, 3)
	g.check(t, "a step behind", contract.StandbyQueue("r"))
	if err := g.accepts("r"); err != nil {
		t.Errorf("an acquisition: got %v", err)
	}
	if err := g.accepts("other"); !fault.Is(err, fault.Busy) {
		t.Errorf("another run: got %v, want Busy", err)
	}
	g.open[contract.LoopID("r")] = false
	g.passes(t, 1)
	g.check(t, "after the loop")
	if want := []string{contract.StandbyQueue("r")}; !slices.Equal(g.opened, want) {
		t.Errorf("it listened to %q, want %q only", g.opened, want)
	}
}

// On the shared queue, trainers come first: a standby listens there only for an acquisition of its run that nobody takes.
// After a rollback the loop of the old lineage is closed, and the standby follows the new one for the same run.
func TestStandby_followsTheLineageThatARollbackOpened(t *testing.T) {
	t.Parallel()
	g := newStage()
	g.start("r", level)
	g.passes(t, 2)
	if l := g.following(); l != lay("r") {
		t.Fatalf("it follows %+v", l)
	}
	g.open[contract.LoopID("r")] = false
	g.passes(t, 1)
	g.check(t, "between two lineages")
	g.open[contract.LoopID("r/l1")] = true
	g.passes(t, 2)
	g.check(t, "the new lineage", contract.StandbyQueue("r"))
	if l, want := g.following(), (record.Layout{Run: "r", Lineage: "l1"}); l != want {
		t.Errorf("it follows %+v, want %+v", l, want)
	}
	if err := g.accepts("r"); err != nil {
		t.Errorf("an acquisition: got %v", err)
	}
	g.acquiring["r/l1"] = true
	g.passes(t, 2)
	g.check(t, "an acquisition that waits", contract.QueueTrainer, contract.StandbyQueue("r"))
}

func TestStandby_leavesTheSharedQueueToTrainers(t *testing.T) {
	t.Parallel()
	g := newStage()
	g.start("r", level)
	g.acquiring["r"] = true // the first acquisition of the run, which a trainer takes
	g.passes(t, 1)
	g.check(t, "at the first question", contract.StandbyQueue("r"))
	g.acquiring["r"] = false
	g.passes(t, 1)
	g.acquiring["r"] = true
	g.passes(t, 1)
	g.check(t, "another acquisition, seen once", contract.StandbyQueue("r"))
	g.pass(t.Context()) // no time has passed, so nothing is asked
	g.check(t, "before the next question", contract.StandbyQueue("r"))
	g.passes(t, 1)
	g.check(t, "seen twice", contract.StandbyQueue("r"), contract.QueueTrainer)
	g.pass(t.Context())
	g.check(t, "between questions", contract.StandbyQueue("r"), contract.QueueTrainer)
	g.acquiring["r"] = false
	g.passes(t, 1)
	g.check(t, "taken by another", contract.StandbyQueue("r"))
}

func TestStandby_isATrainerWhileItLeads(t *testing.T) {
	t.Parallel()
	for _, trainer := range []bool{false, true} {
		g := newStage()
		g.trainer = trainer
		shared := []string{contract.QueueTrainer}
		if trainer { // its process listens to that queue anyway
			shared = nil
		}
		g.start("r", level)
		g.start("z", level)
		g.avoid = map[string]bool{"z": true}
		g.passes(t, 1)
		g.leading = lay("r") // acquired
		g.passes(t, 2)
		g.check(t, "as the trainer", shared...)
		if err := g.accepts("r"); err != nil {
			t.Errorf("its own run: got %v", err)
		}
		if err := g.accepts("z"); !fault.Is(err, fault.Busy) {
			t.Errorf("another run: got %v, want Busy", err)
		}
		g.open[contract.LoopID("r")] = false
		g.passes(t, 2)
		g.check(t, "while the run exports", shared...)
		g.open["r"], g.avoid = false, nil
		g.passes(t, 1)
		g.check(t, "after the run", contract.StandbyQueue("z"))
		if d := cmp.Diff([]string{"r"}, g.released); d != "" {
			t.Errorf("released (-want +got):\n%s", d)
		}
	}
}

// Two standbys follow a run; the one that is not taken, and a trainer that was replaced, follow on.
func TestStandby_followsAgainAfterItWasReplaced(t *testing.T) {
	t.Parallel()
	g := newStage()
	g.start("r", level)
	g.leading = lay("r")
	g.passes(t, 1)
	g.check(t, "as the trainer", contract.QueueTrainer)
	g.fenced = true
	g.passes(t, 1)
	g.check(t, "replaced", contract.StandbyQueue("r"))
	if d := cmp.Diff([]string{"r"}, g.released); d != "" {
		t.Errorf("released (-want +got):\n%s", d)
	}
}

func TestStandby_errors(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := newStage()
			g.start("r", level)
			g.passes(t, 1)
			g.errs["r"] = fault.New(kind, "t", "planned")
			g.passes(t, 1)
			g.check(t, "after the error")
			if err := g.accepts("r"); !fault.Is(err, fault.Busy) {
				t.Errorf("an acquisition: got %v, want Busy", err)
			}
			delete(g.errs, "r")
			g.passes(t, 2)
			if kind.Retryable() || kind == fault.NotFound {
				g.check(t, "over", contract.StandbyQueue("r"))
			} else {
				g.check(t, "for good")
			}
			g.start("q", level)
			g.open[contract.LoopID("r")] = false
			g.passes(t, 1)
			g.check(t, "another run", contract.StandbyQueue("q"))
		})
	}
}

func TestStandby_choosesARunThatItCanServe(t *testing.T) {
	t.Parallel()
	chosen := map[string]bool{}
	for _, name := range strings.Split("a b c d e f g h i j k l m n o p q r s t", " ") {
		g := newStage()
		g.name = name
		for _, run := range []string{"r1", "r2", "r3", "r4"} {
			g.start(run, level)
		}
		g.bad["r2"] = fault.New(fault.Invalid, "t", "another engine")
		g.bad["r3"] = fault.New(fault.NotFound, "t", "another store")
		g.passes(t, 3)
		if len(g.heard) != 1 {
			t.Errorf("host %s listens to %v, want one run", name, g.heard)
		}
		for q := range g.heard {
			chosen[q] = true
		}
	}
	if want := map[string]bool{contract.StandbyQueue("r1"): true, contract.StandbyQueue("r4"): true}; !cmp.Equal(want, chosen) {
		t.Errorf("20 hosts chose %v, want both of %v", chosen, want)
	}
}

func TestParseRoles(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]Role{
		"all":              {RoleControl, RoleData, RoleRollout, RoleJudge, RoleTrainer},
		"standby":          {RoleStandby},
		"trainer, standby": {RoleTrainer, RoleStandby},
		"standby,standby":  nil,
		"spare":            nil,
		"":                 nil,
		"all,standby":      nil,
	} {
		got, err := ParseRoles(list)
		if !slices.Equal(got, want) || fault.Is(err, fault.Invalid) != (want == nil) {
			t.Errorf("%q: got %v, %v; want %v", list, got, err, want)
		}
	}
}
