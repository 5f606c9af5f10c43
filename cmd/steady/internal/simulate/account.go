package simulate

import (
	"encoding/json"
	"math"
	"time"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/virtual"
)

// account is what the simulation counts.
type account struct {
	o       *Options
	records []record.Ledger
	last    *record.Ledger

	lag     []float64 // tokens by lag of the version that sampled them
	oldest  []int     // groups by lag of their oldest token
	lengths []lengthBin
	sumAll  float64 // tokens of the responses that were sent out, and of those that were trained
	nAll    int
	sumIn   float64
	nIn     int

	deaths, judgeFaults, trainersLost, replays int
	overheadSum                                time.Duration
	overheadN                                  int

	steps  []stepAccount
	loops  []loopRun
	kinds  map[string]*history
	events int
	watch  func(step int)
	closed func(virtual.Execution) // set by tests
}

// stepAccount is a point of the curves.
type stepAccount struct {
	end    time.Duration
	lagSum float64 // over tokens
	tokens float64
	drops  int
}

// loopRun is one run of the chain of TrainLoop.
type loopRun struct{ events, bytes, state int }

// history sums up the executions of a workflow type.
type history struct{ runs, events, mostEvents, bytes, mostBytes int }

type lengthBin struct{ submitted, stale, faulty int }

// binCount is the number of length classes: four by the share of the limit, and one for what was cut.
const binCount = 5

var binNames = [binCount]string{"up to 1/8 of the limit", "1/8 to 1/4", "1/4 to 1/2", "above 1/2", "cut at the limit"}

func newAccount(o *Options) account {
	return account{
		o: o, lag: make([]float64, o.Spec.Threshold), oldest: make([]int, o.Spec.Threshold),
		lengths: make([]lengthBin, binCount), kinds: map[string]*history{}, steps: make([]stepAccount, o.Spec.Steps+1),
	}
}

func (a *account) bin(longest int) *lengthBin {
	most := a.o.Lengths.Max
	switch {
	case longest >= most:
		return &a.lengths[4]
	case 2*longest > most:
		return &a.lengths[3]
	case 4*longest > most:
		return &a.lengths[2]
	case 8*longest > most:
		return &a.lengths[1]
	}
	return &a.lengths[0]
}

func (a *account) submitted(u *unit) {
	a.bin(u.longest).submitted++
	for _, r := range u.responses {
		a.sumAll += float64(r.length)
		a.nAll++
	}
}

func (a *account) dropped(d record.Drop, u *unit) {
	switch d.Reason {
	case ledger.Stale:
		a.bin(u.longest).stale++
	case ledger.Infrastructure:
		a.bin(u.longest).faulty++
	}
}

func at[T any](list *[]T, i int) *T {
	for len(*list) <= i {
		var zero T
		*list = append(*list, zero)
	}
	return &(*list)[i]
}

// trained counts the lag of a group in the batch of a step, which starts from version step-1.
//
// It returns false if a response has not as many tokens as its length: the model has lost some.
func (a *account) trained(step int, u *unit) bool {
	whole := true
	oldest, sum, tokens := 0, 0.0, 0.0
	for _, r := range u.responses {
		a.sumIn += float64(r.length)
		a.nIn++
		whole = whole && math.Abs(r.done-float64(r.length)) < 1e-3
		for _, s := range r.spans {
			lag := step - 1 - s.version
			*at(&a.lag, max(0, lag)) += s.tokens
			sum += float64(lag) * s.tokens
			tokens += s.tokens
		}
		oldest = max(oldest, step-1-r.min)
	}
	*at(&a.oldest, max(0, oldest))++
	a.steps[step].lagSum += sum
	a.steps[step].tokens += tokens
	return whole
}

func (a *account) record(l record.Ledger) {
	a.records = append(a.records, l)
	a.steps[l.Step].drops = len(l.Dropped)
}

func (a *account) end(l record.Ledger) { a.last = &l }

func (a *account) updated(step int, now time.Duration, replayed int) {
	a.steps[step].end = now
	a.replays += replayed
}

func (a *account) overhead(d time.Duration) {
	a.overheadSum += d
	a.overheadN++
}

func (a *account) history(e virtual.Execution) {
	if a.closed != nil {
		a.closed(e)
	}
	h := a.kinds[e.Type]
	if h == nil {
		h = &history{}
		a.kinds[e.Type] = h
	}
	h.runs++
	h.events += e.Events
	h.bytes += e.Bytes
	h.mostEvents, h.mostBytes = max(h.mostEvents, e.Events), max(h.mostBytes, e.Bytes)
	a.events += e.Events
	if e.Type == contract.TrainLoop {
		var next struct {
			State json.RawMessage `json:"state"`
		}
		if e.Next != nil && json.Unmarshal(e.Next, &next) != nil {
			next.State = e.Next
		}
		a.loops = append(a.loops, loopRun{e.Events, e.Bytes, len(next.State)})
		if a.watch != nil {
			a.watch(len(a.records))
		}
	}
}
