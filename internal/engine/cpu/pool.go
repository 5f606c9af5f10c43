package cpu

import (
	"sync"
	"sync/atomic"
)

// pool runs independent units of work on a fixed number of goroutines.
type pool struct{ threads int }

// run calls f for every unit in [0, units) and waits. Units are taken from a shared counter, so f must not
// depend on which worker runs it; worker < threads selects scratch memory.
func (p pool) run(units int, f func(worker, unit int)) {
	n := min(p.threads, units)
	var next atomic.Int64
	work := func(worker int) {
		for u := int(next.Add(1)) - 1; u < units; u = int(next.Add(1)) - 1 {
			f(worker, u)
		}
	}
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() { work(i) })
	}
	work(0)
	wg.Wait()
}

// grow returns a slice of length n, reusing s where it is large enough. Old contents are arbitrary.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
