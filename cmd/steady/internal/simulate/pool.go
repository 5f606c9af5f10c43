package simulate

import (
	"container/heap"
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/virtual"
)

// response is one trajectory of a unit. It outlives attempts, as its flushed tokens do.
type response struct {
	length int     // sampled tokens at its end
	done   float64 // tokens that are durable from earlier attempts
	spans  []tokensOf
	min    int // oldest version that sampled a token, -1 before the first

	finished bool
	version  int     // that samples now
	since    float64 // service of the worker when version began
	end      float64 // service of the worker at which the response is complete
	seq      int     // order of entry, for ties
}

// tokensOf are tokens that one version sampled.
type tokensOf struct {
	version int
	tokens  float64
}

func (r *response) add(version int, tokens float64) {
	if tokens <= 0 {
		return
	}
	if n := len(r.spans); n > 0 && r.spans[n-1].version == version {
		r.spans[n-1].tokens += tokens
	} else {
		r.spans = append(r.spans, tokensOf{version, tokens})
	}
	r.done += tokens
	if r.min < 0 || version < r.min {
		r.min = version
	}
}

// job is one attempt at a unit on a rollout worker.
type job struct {
	attempt  *virtual.Attempt
	unit     *unit
	left     int // responses that are not complete
	finished func()
	taken    func(*machine) // nil, or called when a worker has taken it
}

type activeResponse struct {
	*response
	job *job
}

// machine is a rollout process: it takes attempts as long as it has places, and generates at most slots responses at once. All
// of them go on at one rate, so that a response is complete when the service of the worker has grown by its length.
type machine struct {
	pool    *pool
	jobs    []*job
	waiting []activeResponse
	active  activeHeap
	alive   bool
	busyAt  time.Duration // up to where service is counted
	service float64       // tokens that a response would have got since the start
	stalled time.Duration // until then it loads weights
	timer   int           // number of the newest wake-up; older ones do nothing
	next    int
}

// pool is all rollout workers and their task queue.
type pool struct {
	s        *virtual.Server
	o        *Options
	queue    []*job
	machines []*machine
	turn     int
	version  int // served

	used usage
}

// usage is what the pool has done.
type usage struct {
	slots, busy time.Duration // time of slots with a response, and of workers with at least one
	tokens      float64
}

// usage counts up to now.
func (p *pool) usage() usage {
	for _, m := range p.machines {
		m.advance()
	}
	return p.used
}

func newPool(s *virtual.Server, o *Options) *pool {
	p := &pool{s: s, o: o}
	for range o.Workers {
		p.machines = append(p.machines, &machine{pool: p, alive: true})
	}
	return p
}

// places is how many attempts a rollout worker takes at once: as in package workers.
func (p *pool) places() int { return max(p.o.Slots, 4) }

func (p *pool) submit(j *job) {
	p.queue = append(p.queue, j)
	p.dispatch()
}

// dispatch hands waiting attempts to the workers in turn.
func (p *pool) dispatch() {
	for len(p.queue) > 0 {
		if !p.queue[0].attempt.Open() {
			p.queue = p.queue[1:]
			continue
		}
		w := p.free()
		if w == nil {
			return
		}
		j := p.queue[0]
		p.queue = p.queue[1:]
		w.take(j)
	}
}

func (p *pool) free() *machine {
	for i := range p.machines {
		w := p.machines[(p.turn+i)%len(p.machines)]
		if w.alive && len(w.jobs) < p.places() {
			p.turn = (p.turn + i + 1) % len(p.machines)
			return w
		}
	}
	return nil
}

// publish makes every worker serve a version. Responses in flight go on under it.
func (p *pool) publish(version int) {
	if version <= p.version {
		return
	}
	p.version = version
	for _, w := range p.machines {
		w.advance()
		for _, a := range w.active.items {
			a.add(a.version, w.service-a.since)
			a.version, a.since = version, w.service
		}
		if w.alive && p.o.Swap > 0 {
			w.stalled = p.s.Now() + p.o.Swap
		}
		w.plan()
	}
}

func (w *machine) take(j *job) {
	w.jobs = append(w.jobs, j)
	j.attempt.Take()
	j.left = 0
	for _, r := range j.unit.responses {
		if !r.finished {
			j.left++
			w.waiting = append(w.waiting, activeResponse{r, j})
		}
	}
	drop := func() { w.drop(j) }
	j.attempt.Cancelled, j.attempt.TimedOut = drop, drop
	if j.left == 0 { // all was durable before the attempt
		w.forget(j)
		j.finished()
		return
	}
	w.advance()
	w.fill()
	w.plan()
	if j.taken != nil {
		j.taken(w)
	}
}

// advance counts the service since the last time.
func (w *machine) advance() {
	now := w.pool.s.Now()
	from := max(w.busyAt, min(w.stalled, now))
	if n := len(w.active.items); n > 0 {
		gained := w.pool.o.Rate.at(n) * (now - from).Seconds()
		w.service += gained
		w.pool.used.tokens += gained * float64(n)
		w.pool.used.slots += time.Duration(n) * (now - w.busyAt)
		w.pool.used.busy += now - w.busyAt
	}
	w.busyAt = now
}

// fill gives free slots to responses that wait.
func (w *machine) fill() {
	for len(w.waiting) > 0 && len(w.active.items) < w.pool.o.Slots {
		a := w.waiting[0]
		w.waiting = w.waiting[1:]
		a.version, a.since = w.pool.version, w.service
		a.end = w.service + float64(a.length) - a.done
		w.next++
		a.seq = w.next
		heap.Push(&w.active, a)
	}
}

// plan wakes the worker when its next response is complete.
func (w *machine) plan() {
	w.timer++
	if len(w.active.items) == 0 || !w.alive {
		return
	}
	number := w.timer
	left := max(0, w.active.items[0].end-w.service) / w.pool.o.Rate.at(len(w.active.items))
	// Rounded up to whole nanoseconds, so that service has arrived when the time has.
	wait := time.Duration(left*float64(time.Second)) + 1
	w.pool.s.After(max(0, w.stalled-w.pool.s.Now())+wait, func() {
		if number == w.timer && w.alive {
			w.complete()
		}
	})
}

func (w *machine) complete() {
	w.advance()
	var ended []*job
	for len(w.active.items) > 0 && w.active.items[0].end <= w.service+1e-6 {
		a, ok := heap.Pop(&w.active).(activeResponse)
		if !ok {
			break // the heap holds nothing else
		}
		a.add(a.version, float64(a.length)-a.done)
		a.finished = true
		a.job.left--
		if a.job.left == 0 {
			ended = append(ended, a.job)
		}
	}
	for _, j := range ended {
		w.forget(j)
		j.finished()
	}
	w.fill()
	w.plan()
	if len(ended) > 0 {
		w.pool.dispatch()
	}
}

// drop ends an attempt that the server has given up; what its responses have is durable.
func (w *machine) drop(j *job) {
	w.advance()
	if !w.forget(j) {
		return
	}
	w.pull(j, 0)
	w.fill()
	w.plan()
	w.pool.dispatch()
}

func (w *machine) has(j *job) bool { return slices.Contains(w.jobs, j) }

// forget says whether the worker had the job.
func (w *machine) forget(j *job) bool {
	i := slices.Index(w.jobs, j)
	if i >= 0 {
		w.jobs = slices.Delete(w.jobs, i, i+1)
	}
	return i >= 0
}

// pull takes the responses of a job (nil for all) off the worker. Each loses up to so many tokens that were not flushed.
func (w *machine) pull(j *job, unflushed float64) {
	keep := w.active.items[:0]
	for _, a := range w.active.items {
		if j != nil && a.job != j {
			keep = append(keep, a)
			continue
		}
		a.add(a.version, w.service-a.since-unflushed)
	}
	w.active.items = keep
	heap.Init(&w.active)
	waiting := w.waiting[:0]
	for _, a := range w.waiting {
		if j != nil && a.job != j {
			waiting = append(waiting, a)
		}
	}
	w.waiting = waiting
}

// die ends the process. Its attempts are lost; another process takes its place after Options.Restart.
func (w *machine) die() {
	w.advance()
	w.alive = false
	// On average half an interval of flushes is gone.
	w.pull(nil, w.pool.o.Rate.at(max(1, len(w.active.items)))*w.pool.o.Flush.Seconds()/2)
	for _, j := range w.jobs {
		j.attempt.Cancelled, j.attempt.TimedOut = nil, nil
		j.attempt.Lost()
	}
	w.jobs = nil
	w.plan()
	w.pool.s.After(w.pool.o.Restart, func() {
		w.advance()
		w.alive = true
		w.pool.dispatch()
	})
}

// activeHeap is ordered by what is complete first.
type activeHeap struct{ items []activeResponse }

func (h *activeHeap) Len() int { return len(h.items) }
func (h *activeHeap) Less(i, j int) bool {
	a, b := h.items[i], h.items[j]
	return a.end < b.end || a.end == b.end && a.seq < b.seq
}
func (h *activeHeap) Swap(i, j int) { h.items[i], h.items[j] = h.items[j], h.items[i] }

// Push is heap's.
func (h *activeHeap) Push(v any) {
	if a, ok := v.(activeResponse); ok {
		h.items = append(h.items, a)
	}
}

// Pop is heap's.
func (h *activeHeap) Pop() any {
	last := h.items[len(h.items)-1]
	h.items = h.items[:len(h.items)-1]
	return last
}
