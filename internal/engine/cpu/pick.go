package cpu

import (
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// pick draws the token at absolute position pos from the row of logits z [V] and records it.
//
// Numerics: inverse distribution function. The float32 exponentials of the shifted logits are added in float64
// in index order; the drawn id is the first whose running sum exceeds Uniform(pos) times the total.
func (w *worker) pick(z []float32, req *engine.Request, pos, version int) (engine.Token, error) {
	d, ok := w.softmax(z, w.expo, req.Temperature)
	if !ok {
		return engine.Token{}, fault.New(fault.Numeric, "cpu.Generate", "a logit at position %d is not finite", pos).
			WithHint("the weights of version %d are damaged", version)
	}
	id := draw(w.expo[:w.cfg.Vocab], req.Random.Uniform(uint64(pos)))
	t := engine.Token{ID: int32(id), LogProb: d.logProb(z[id]), Entropy: d.entropy, Version: version}
	if req.TopK > 0 {
		t.TopIDs, t.TopLogProbs = w.top(z[:w.cfg.Vocab], req.TopK, d)
	}
	return t, nil
}

func draw(e []float32, u float64) int {
	var total float64
	for _, x := range e {
		total += float64(x)
	}
	goal, last := u*total, 0
	var sum float64
	for i, x := range e {
		if x == 0 {
			continue
		}
		sum += float64(x)
		last = i
		if sum > goal {
			return i
		}
	}
	return last
}

// top returns the k largest logits' ids and log-probabilities, ties by the smaller id.
func (w *worker) top(z []float32, k int, d distribution) (ids []int32, logProbs []float32) {
	keys := w.keys[:0]
	for i, x := range z {
		keys = append(keys, rankKey(x, i))
	}
	w.keys = keys
	selectLargest(keys, k)
	keys = keys[:k]
	slices.Sort(keys)
	ids, logProbs = make([]int32, k), make([]float32, k)
	for i := range k {
		id := ^uint32(keys[k-1-i])
		ids[i], logProbs[i] = int32(id), d.logProb(z[id])
	}
	return ids, logProbs
}

// rankKey orders by logit, then by descending id: a larger key comes first. Zeros of both signs are equal.
func rankKey(x float32, id int) uint64 {
	b := math.Float32bits(x + 0)
	if x == 0 {
		b = 0
	}
	if b>>31 == 1 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^uint32(id))
}

// selectLargest moves the k largest keys to the front (Hoare's selection; keys are distinct).
func selectLargest(keys []uint64, k int) {
	lo, hi := 0, len(keys)-1
	for lo < hi {
		mid := lo + (hi-lo)/2
		a, b, c := keys[lo], keys[mid], keys[hi]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := lo, hi
		for i <= j {
			for keys[i] > pivot {
				i++
			}
			for keys[j] < pivot {
				j--
			}
			if i <= j {
				keys[i], keys[j] = keys[j], keys[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}

// scoreRow returns the log-probability of id under the row of logits z [V] at temperature 1.
func (w *worker) scoreRow(z []float32, id int32) (float32, error) {
	d, ok := w.softmax(z, w.expo, 1)
	if !ok {
		return 0, fault.New(fault.Numeric, "cpu.Score", "a logit is not finite")
	}
	return d.logProb(z[id]), nil
}
