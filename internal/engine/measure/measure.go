// Package measure times samplers: figures with the bound that the hardware sets beside them, for the command `steady bench engine`.
package measure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rng"
)

// Figure is one measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Roofline is the best that the hardware allows, in the same unit, by the bound that Bound names; 0 for none.
	Roofline float64 `json:"roofline,omitempty"`
	Bound    string  `json:"bound,omitempty"`
}

// Share is Value as a part of Roofline, 0 without one. Both are rates: more is better.
func (f Figure) Share() float64 {
	if f.Roofline == 0 {
		return 0
	}
	return f.Value / f.Roofline
}

// Print writes figures as a table.
func Print(w io.Writer, figures []Figure) error {
	for _, f := range figures {
		line := fmt.Sprintf("%-28s %14.2f %-6s", f.Name, f.Value, f.Unit)
		if f.Roofline > 0 {
			line += fmt.Sprintf(" %5.1f%% of %.0f (%s)", 100*f.Share(), f.Roofline, f.Bound)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Traffic is what a decode step of n sequences after context tokens reads at least: every weight once and all keys and values, in bytes.
func Traffic(c model.Config, n, context, elemBytes int) float64 {
	return float64(weights(c)+n*context*2*c.Layers*c.KVHeads*c.HeadDim) * float64(elemBytes)
}

// Operations is the number of multiplications and additions of a prompt of that many tokens, without its head.
func Operations(c model.Config, tokens int) float64 {
	attention := 2 * c.Layers * c.Heads * c.HeadDim * tokens // causal: half of 4 per key
	return float64(tokens) * float64(2*(weights(c)-c.Vocab*c.Hidden)+attention)
}

// weights is the number of weights that a token's products read; the embedding only if it is the head.
func weights(c model.Config) int {
	layer := c.Hidden*(c.Heads+2*c.KVHeads)*c.HeadDim + c.Heads*c.HeadDim*c.Hidden + 3*c.Hidden*c.Intermediate
	return c.Layers*layer + c.Vocab*c.Hidden
}

// Load is what Sampler asks for: Sequences prompts of Context tokens, New tokens each with a record of TopK.
type Load struct{ Sequences, Context, New, TopK int }

// Sampler runs a load and returns the new tokens a second while all sequences decode, and those of the whole with its prompts.
func Sampler(ctx context.Context, s engine.Sampler, c model.Config, l Load) (decode, whole float64, err error) {
	times, errs := make([][]time.Time, l.Sequences), make([]error, l.Sequences)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range l.Sequences {
		wg.Go(func() {
			st, tokens := rng.New(1, rng.Corpus, i), make([]int32, l.Context)
			for p := range tokens {
				tokens[p] = int32(st.IntN(uint64(p), c.Vocab)) //nolint:gosec // an id
			}
			_, errs[i] = s.Generate(ctx, engine.Request{
				Tokens: tokens, MaxNew: l.New, Random: rng.New(1, rng.Train, i), Sampling: engine.Sampling{Temperature: 1, TopK: l.TopK},
			}, func(engine.Token) error {
				times[i] = append(times[i], time.Now())
				return nil
			})
		})
	}
	wg.Wait()
	end := time.Now()
	var first, last time.Time // all have begun, one has ended
	for i := range times {
		if errs[i] != nil {
			return 0, 0, errs[i]
		}
		if times[i][0].After(first) {
			first = times[i][0]
		}
		if t := times[i][l.New-1]; last.IsZero() || t.Before(last) {
			last = t
		}
	}
	n := 0
	for _, t := range slices.Concat(times...) {
		if t.After(first) && !t.After(last) {
			n++
		}
	}
	if d := last.Sub(first).Seconds(); d > 0 {
		decode = float64(n) / d
	}
	return decode, float64(l.Sequences*l.New) / end.Sub(begin).Seconds(), nil
}

// CopyBandwidth is the bytes a second that this machine's processor reads and writes in copies of memory, by several goroutines.
func CopyBandwidth(threads int) float64 {
	const size, rounds = 64 << 20, 3
	best := 0.0
	from, to := make([]byte, size*threads), make([]byte, size*threads)
	for i := range from {
		from[i] = byte(i)
	}
	for range rounds {
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() { copy(to[i*size:][:size], from[i*size:]) })
		}
		wg.Wait()
		best = max(best, 2*float64(size*threads)/time.Since(begin).Seconds())
	}
	return best
}
