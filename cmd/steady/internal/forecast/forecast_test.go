package forecast_test

import (
	"math"
	"testing"

	"github.com/steadyrl/steady/cmd/steady/internal/forecast"
	"github.com/steadyrl/steady/internal/engine/plan"
)

func rates(t *testing.T, size, card string) forecast.Rates {
	t.Helper()
	s, err := plan.SizeNamed(size)
	if err != nil {
		t.Fatal(err)
	}
	c, err := plan.CardNamed(card)
	if err != nil {
		t.Fatal(err)
	}
	return forecast.Rates{Model: s.Model, Card: c, Kept: 1}
}

// Against the figures of docs/benchmarks/cuda.md, the seventh run or, for 0.6B and updates, earlier ones: what was measured on an H200. One share serves all loads, so
// an estimate may be off by the spread of the shares (0.61 to 0.86 for decoding: 27 % at most); prompts have a share for each of the two sizes.
func TestRates_areNearTheMeasuredOnes(t *testing.T) {
	t.Parallel()
	four, small := rates(t, "4B", "H200"), rates(t, "0.6B", "H200")
	bare := four
	bare.Kept = 0
	for _, tt := range []struct {
		name             string
		got, want, share float64
	}{
		{"decode 4B 64x1024, ms", 1e3 * four.DecodeStep(64, 1024), 5.65, 0.10},
		{"decode 4B 64x4096, ms", 1e3 * four.DecodeStep(64, 4096), 12.66, 0.27},
		{"decode 4B 256x1024, ms", 1e3 * four.DecodeStep(256, 1024), 16.99, 0.10},
		{"decode 0.6B 64x1024, ms", 1e3 * small.DecodeStep(64, 1024), 3.35, 0.12},
		{"decode 0.6B 64x4096, ms", 1e3 * small.DecodeStep(64, 4096), 9.04, 0.27},
		{"prompt 4B, tok/s", four.Prompts(1024), 45_810, 0.05},
		{"prompt 0.6B, tok/s", small.Prompts(1024), 132_034, 0.05},
		{"update 4B 8x2048, tok/s", 16384 / four.Update(16384, 2048), 20_806, 0.10},
		{"update 4B 2x8192, tok/s", 16384 / four.Update(16384, 8192), 16_105, 0.10},
		{"update 4B 8x2048, nothing kept, tok/s", 16384 / bare.Update(16384, 2048), 17_267, 0.10},
		{"update 4B 2x8192, nothing kept, tok/s", 16384 / bare.Update(16384, 8192), 13_356, 0.10},
		{"norm and AdamW 4B, ms", 1e3 * four.Optimizer(), 37.4, 0.05},
	} {
		if off := math.Abs(tt.got/tt.want - 1); !(off <= tt.share) {
			t.Errorf("%s: estimated %.4g, measured %.4g: off by %.0f %%, want at most %.0f %%", tt.name, tt.got, tt.want, 100*off, 100*tt.share)
		}
	}
}

func published() forecast.Run {
	return forecast.Run{
		Steps: 200, Validations: 10, Problems: 16, Group: 4, DevProblems: 256, MeanPrompt: 700, MeanResponse: 2500, MaxResponse: 8192, Async: true, Prefill: 2,
		Samplers: 1, Together: 22,
	}
}

// With numbers that make the arithmetic plain: what bounds a step is what takes longest.
func TestEstimate_namesWhatBoundsAStep(t *testing.T) {
	t.Parallel()
	r := rates(t, "4B", "H200")
	for name, tt := range map[string]struct {
		edit  func(*forecast.Run)
		bound string
	}{
		"one GPU that generates":  {func(*forecast.Run) {}, "the rate of the rollout GPUs"},
		"many that generate":      {func(u *forecast.Run) { u.Samplers, u.Together, u.Prefill, u.MaxResponse = 64, 64, 7, 3000 }, "the update"},
		"room for long responses": {func(u *forecast.Run) { u.Samplers, u.Together, u.Prefill = 4, 64, 0 }, "the longest response of a batch"},
		"in turn":                 {func(u *forecast.Run) { u.Async = false }, "rollout and update in turn"},
	} {
		run := published()
		tt.edit(&run)
		got := forecast.Estimate(r, run)
		if got.Bound != tt.bound {
			t.Errorf("%s: bound by %s, want %s (%+v)", name, got.Bound, tt.bound, got)
		}
		want := max(got.Rollout, got.Update)
		if !run.Async {
			want = got.Rollout + got.Update
		}
		if math.Abs(got.Step-want) > 1e-9*want {
			t.Errorf("%s: a step of %v s, want %v", name, got.Step, want)
		}
		hours := (float64(run.Steps)*got.Step + float64(run.Validations)*got.Validation) / 3600
		if math.Abs(got.Hours-hours) > 1e-9*hours || !(got.Hours > 0) {
			t.Errorf("%s: %v hours, want %v", name, got.Hours, hours)
		}
	}
}

// A run never gets slower by a better card, more GPUs that generate or room for more responses.
func TestEstimate_moreHardwareIsNotSlower(t *testing.T) {
	t.Parallel()
	before := forecast.Estimate(rates(t, "4B", "A100"), published()).Hours
	if after := forecast.Estimate(rates(t, "4B", "H200"), published()).Hours; !(after < before) {
		t.Errorf("H200: %v hours, A100: %v", after, before)
	}
	for n := 1; n < 8; n++ {
		a, b := published(), published()
		a.Samplers, b.Samplers = n, n+1
		r := rates(t, "4B", "H200")
		if x, y := forecast.Estimate(r, a).Hours, forecast.Estimate(r, b).Hours; y > x*1.0001 {
			t.Errorf("%d GPUs: %v hours, %d: %v", n, x, n+1, y)
		}
	}
}

func TestDiskOf_countsEveryKind(t *testing.T) {
	t.Parallel()
	k := forecast.Keep{Steps: 200, CheckpointEvery: 50, Checkpoints: 2, Threshold: 4, Record: 128, Responses: 12_800, DevResponses: 100, MeanResponse: 10}
	got := forecast.DiskOf(1000, k)
	want := forecast.Disk{Checkpoints: 3 * 12_000, Weights: 56 * 2000, Trajectories: 12_800*10*1050 + 100*10*26, Export: 2000}
	if got != want || got.Sum() != want.Checkpoints+want.Weights+want.Trajectories+want.Export {
		t.Errorf("%+v, want %+v", got, want)
	}
	k.MilestoneEvery = 100
	if got := forecast.DiskOf(1000, k).Checkpoints; got != 5*12_000 {
		t.Errorf("with milestones %v bytes of checkpoints, want %v", got, 5*12_000)
	}
}
