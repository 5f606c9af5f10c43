package agent_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/engine/external"
	"github.com/steadyrl/steady/internal/engine/external/externaltest"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/trajectory"
)

// The loop over a server: whatever fails, at whatever token the worker is killed, what is recorded is what was sampled behind exactly
// the tokens before it. The reference engine says so, with the server's weights.
func TestRun_overAnExternalServer(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{external.VLLM, external.SGLang} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			c := model.Config{
				Vocab: 450, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10, MaxPosition: 4096, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
			}
			w := model.NewWeights(c)
			w.Init(1, 0.5)
			oracle, err := ref.NewSampler(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := oracle.SetWeights(t.Context(), 3, w); err != nil {
				t.Fatal(err)
			}
			server := externaltest.Start(t, dialect, w)
			s, err := external.New(t.Context(), external.Options{
				URL: server.URL, Dialect: dialect, Model: externaltest.ModelName, Config: c, Version: 3, TopK: 4, Tolerance: 1e-3,
			})
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			t.Cleanup(func() { _ = s.Close() })
			p := prepare(t)
			p.traj = trajectory.New(trajectory.Key{ProblemID: "p"}, p.traj.IDs(), 4)
			p.opts.Sampler, p.opts.Sampling.TopK, p.opts.MaxResponse, p.opts.Random = s, 4, 8, rng.New(1, rng.Train, dialect)
			killed := errors.New("killed")
			for n, f := range []externaltest.Fault{externaltest.Breaks, externaltest.Status500, externaltest.Twice, externaltest.None, externaltest.None} {
				server.Set(f)
				flushed := 0
				err := agent.Run(t.Context(), p.traj, p.opts, func(*trajectory.Trajectory) error {
					if flushed++; f == externaltest.None && flushed == 2 && n == 3 {
						return killed
					}
					return nil
				})
				if want := map[externaltest.Fault]fault.Kind{externaltest.Breaks: fault.Lost, externaltest.Status500: fault.Lost, externaltest.Twice: fault.Infrastructure}[f]; f != externaltest.None && !fault.Is(err, want) {
					t.Fatalf("%s: %v, want %s", f, err, want)
				}
				if n == 3 && !errors.Is(err, killed) || n == 4 && err != nil {
					t.Fatalf("attempt %d: %v", n, err)
				}
				back, err := trajectory.Decode(mustEncode(t, p.traj)) // another worker reads the flush
				if err != nil {
					t.Fatal(err)
				}
				p.traj = back[0]
			}
			if p.traj.End != trajectory.EndLength || p.traj.Sampled() != 8 {
				t.Fatalf("end %q after %d tokens, want length after 8", p.traj.End, p.traj.Sampled())
			}
			scores, err := oracle.Score(t.Context(), p.traj.IDs())
			if err != nil {
				t.Fatal(err)
			}
			for i, sampled := range p.traj.Mask() {
				if !sampled {
					continue
				}
				ids, lps := p.traj.Head(i)
				at := slices.Index(ids, p.traj.IDs()[i])
				if math.Abs(float64(p.traj.LogProbs()[i]-scores[i-1])) > 1e-5 || p.traj.Versions()[i] != 3 || len(ids) != 4 || at >= 0 && math.Abs(float64(lps[at]-scores[i-1])) > 1e-5 {
					t.Errorf("token %d of version %d has log-probability %v, record %v; the engine says %v", i, p.traj.Versions()[i], p.traj.LogProbs()[i], lps, scores[i-1])
				}
			}
		})
	}
}

func mustEncode(t *testing.T, tr *trajectory.Trajectory) []byte {
	t.Helper()
	data, err := trajectory.Encode([]*trajectory.Trajectory{tr})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
