package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const runLabel = "run"

// MaxRuns is the number of runs whose series a process keeps. A process serves one run, or a few; a worker that lives through
// thousands must not give each of them some fifty series for ever.
const MaxRuns = 8

// runs bounds the values of the label run: the series of the run that was touched longest ago are removed for a new one.
type runs struct {
	mu   sync.Mutex
	now  func() time.Time
	last []string             // runs with series, the one touched last at the end
	at   map[string]time.Time // when each was touched
	vecs []*prometheus.GaugeVec
}

func newRuns() *runs { return &runs{now: time.Now, at: map[string]time.Time{}} }

// own makes a vector subject to the bound.
func (r *runs) own(v *prometheus.GaugeVec) { r.vecs = append(r.vecs, v) }

// touch makes room for a run.
func (r *runs) touch(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.last, run); i >= 0 {
		r.last = slices.Delete(r.last, i, i+1)
	}
	r.last = append(r.last, run)
	r.at[run] = r.now()
	for len(r.last) > MaxRuns {
		r.remove(r.last[0])
		r.last = r.last[1:]
	}
}

// quiet lists the runs that were not touched for d.
func (r *runs) quiet(d time.Duration) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, run := range r.last {
		if r.now().Sub(r.at[run]) >= d {
			out = append(out, run)
		}
	}
	return out
}

func (r *runs) has(run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.last, run)
}

// forget removes the series of a run.
func (r *runs) forget(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.last, run); i >= 0 {
		r.last = slices.Delete(r.last, i, i+1)
	}
	r.remove(run)
}

func (r *runs) remove(run string) {
	delete(r.at, run)
	for _, v := range r.vecs {
		v.DeletePartialMatch(prometheus.Labels{runLabel: run})
	}
}
