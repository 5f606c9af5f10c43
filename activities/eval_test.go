package activities

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/trajectory"
)

// opinion judges by the bytes of a response.
type opinion struct{}

func (opinion) Judge(_ context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	sum := sha256.Sum256([]byte(response))
	v := judge.Verdict{FormatOK: sum[0]%2 > 0, Kind: judge.TimeLimit, Passed: int(sum[1]) % (len(tests) + 1), Total: len(tests)}
	for range tests {
		v.Tests = append(v.Tests, judge.TestVerdict{Kind: judge.TimeLimit})
	}
	return v, nil
}

func (o opinion) JudgeCode(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
	return o.Judge(ctx, code, tests)
}

// An evaluation under a run's settings has the tokens, verdicts and figures of the run's own validation of these weights, bit for bit.
func TestEvaluation_reproducesTheValidation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var err error
	if s.set, err = demoSet(t.Context(), t.TempDir()); err != nil { // with files, for the judge
		t.Fatal(err)
	}
	edit := s.edit
	s.edit = func(c *config.Config) { edit(c); c.Validation.Temperature = 0.7; c.Sandbox.PythonVersion = "" }
	r := s.worker(t, &killer{})
	run, err := r.Runs.Of(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	unit := record.EvalUnit("export", 0)
	version := 1
	beat := &Beat{values: make(chan any, 1e4)}
	gen, err := r.generate(t.Context(), contract.GenerateRequest{
		RunKey: key, Unit: unit, Split: "dev", Problems: []int{0, 1}, Samples: 1, MinVersion: version, Pin: &version, Source: "published",
	}, beat)
	if err != nil {
		t.Fatal(err)
	}
	j := &Judge{Runs: r.Runs, Notes: r.Notes, Judge: func(*Run) Judger { return opinion{} }, Slots: 2, Python: "3.13.1"}
	if _, err := j.judge(t.Context(), contract.JudgeRequest{RunKey: key, Unit: unit, Split: "dev", File: gen.File}, beat); err != nil {
		t.Fatal(err)
	}
	want, err := batch.Summarize(t.Context(), r.Runs.Store, lay, []string{unit})
	if err != nil {
		t.Fatal(err)
	}
	sampler := &speaker{stage: s, k: &killer{}, ver: version}
	store, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got, err := eval.Run(t.Context(), s.set.Eval(dataset.Dev), eval.Options{
		Store: store, K: []int{1}, Sampler: sampler, Vocab: s.vocab, Tokenizer: s.tok,
		Tool:  rollout.Tool{Programs: r.Tool, Limits: Limits(run.Config)},
		Judge: opinion{}, Slots: 1, AtOnce: 1,
		Settings: eval.Settings{Data: eval.Data{Kind: "taco", Split: "dev"}, Samples: 1, Seed: run.Config.Run.Seed, Sampling: ValidationSettings(run.Config)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Metrics, got.Totals.Metrics); d != "" || want.Problems != got.Totals.Problems || want.Metrics.ToolUsed == 0 {
		t.Errorf("%d and %d problems; metrics (-validation +evaluation):\n%s", want.Problems, got.Totals.Problems, d)
	}
	trained := s.disk.held(t, "trajectories")
	if len(trained) != 2 {
		t.Fatalf("%d trajectories of the validation", len(trained))
	}
	for i, item := range want.Items {
		p := got.Problems[i]
		if o := p.Samples[0]; p.ID != item.Problem || o.Kind != item.Kind || o.Passed != item.Passed || o.Total != item.Total {
			t.Errorf("problem %d: evaluation %s %+v, validation %+v", i, p.ID, o, item)
		}
		data, _, err := store.Get(t.Context(), fmt.Sprintf("problems/%06d/trajectories.parquet", i))
		if err != nil {
			t.Fatal(err)
		}
		ts, err := trajectory.DecodeSealed(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(t, quiet(trained[i:i+1]), ts); d != "" {
			t.Errorf("problem %d (-validation +evaluation):\n%s", i, d)
		}
	}
}

// quiet returns the trajectories without times, as difference wants those of the first kind.
func quiet(ts []*trajectory.Trajectory) []*trajectory.Trajectory {
	for _, t := range ts {
		t.Seconds = 0
		for i := range t.Turns {
			t.Turns[i].Seconds = 0
			if c := t.Turns[i].Call; c != nil {
				c.Seconds, c.QueueSeconds = 0, 0
			}
		}
	}
	return ts
}
