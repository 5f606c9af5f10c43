package forecast

import (
	"math"

	"github.com/steadyrl/steady/internal/engine/measure"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/model"
)

// Shares that were measured on one H200 (docs/benchmarks/cuda.md, third, fourth and seventh run), of the data sheet's rates or of the roofline.
const (
	ProductShare   = 790.0 / 989 // a large BF16 product, of the data sheet's operations
	CopyShare      = 4.28 / 4.8  // a copy, of the data sheet's bandwidth
	TrainShare     = 0.66        // forward and backward at 2 x 8,192 and at mixed lengths with all activations kept, of ProductShare
	RecomputeShare = 0.83        // of that, when none are kept
	DecodeShare    = 0.68        // decoding, of the time to read weights, keys and values at CopyShare: 0.61 to 0.86
	OptimizerShare = 0.80        // norm and AdamW, which move 32 bytes a weight, of CopyShare
	// PromptShare is a prompt of 1,024 tokens, of ProductShare: 0.44 with 4 billion weights, 0.17 with 0.6 billion (in the fourth run).
	PromptShare, SmallPromptShare = 0.44, 0.17
)

// Rates are those of one GPU.
type Rates struct {
	Model model.Config
	Card  plan.Card
	// Kept is the share of the layers whose activations a trainer keeps, 1 with all inputs of products.
	Kept float64
}

func (r Rates) products() float64  { return r.Card.Operations * ProductShare }
func (r Rates) bandwidth() float64 { return r.Card.Bandwidth * CopyShare }

// DecodeStep is the time in seconds of a step that draws one token for each of n sequences after context tokens.
func (r Rates) DecodeStep(n, context int) float64 {
	n = max(n, 1)
	moved := measure.Traffic(r.Model, n, context, 2) / r.bandwidth()
	worked := float64(n) * (measure.Operations(r.Model, 1) + head(r.Model)) / r.products()
	return max(moved, worked) / DecodeShare
}

// head is the number of operations of a token's logits.
func head(c model.Config) float64 { return 2 * float64(c.Vocab) * float64(c.Hidden) }

// Prompts is the number of prompt tokens a second, for prompts of a length.
func (r Rates) Prompts(length int) float64 {
	share := PromptShare
	if plan.Parameters(r.Model) < 1e9 {
		share = SmallPromptShare
	}
	length = max(length, 1)
	return share * r.products() * float64(length) / measure.Operations(r.Model, length)
}

// TrainRate is the number of tokens a second of forward and backward passes, for trajectories of a length.
func (r Rates) TrainRate(length int) float64 {
	length = max(length, 1)
	share := TrainShare * (RecomputeShare + (1-RecomputeShare)*r.Kept)
	return share * r.products() / (3 * (measure.Operations(r.Model, length)/float64(length) + head(r.Model)))
}

// Optimizer is the time in seconds of the norm and of AdamW.
func (r Rates) Optimizer() float64 {
	return 32 * float64(plan.Parameters(r.Model)) / (OptimizerShare * r.bandwidth())
}

// Update is the time in seconds of an update with so many tokens.
func (r Rates) Update(tokens float64, length int) float64 {
	return tokens/r.TrainRate(length) + r.Optimizer()
}

// Run is what the time of a run depends on.
type Run struct {
	Steps, Validations int // validations include that of the export
	Problems, Group    int // of a step
	DevProblems        int
	// MeanPrompt and MeanResponse are assumptions, in tokens; MaxResponse is the limit, which the longest of a batch is taken to reach.
	MeanPrompt, MeanResponse, MaxResponse int
	Async                                 bool
	Prefill                               int
	// Samplers is the number of GPUs that generate; Shared says that the trainer has the only one too.
	Samplers int
	Shared   bool
	Together int // responses that one of them generates at once
}

// Times are the result, in seconds unless said otherwise.
type Times struct {
	TokensStep   float64 `json:"tokens_a_step"` // of trained trajectories, prompts included
	TogetherMean float64 `json:"responses_at_once"`
	DecodeStep   float64 `json:"decode_step_seconds"`
	DecodeRate   float64 `json:"decode_tokens_per_second"` // of one GPU
	ResponseRate float64 `json:"response_tokens_per_second"`
	PromptRate   float64 `json:"prompt_tokens_per_second"` // of one GPU
	TrainRate    float64 `json:"train_tokens_per_second"`  // the optimiser included
	Update       float64 `json:"update_seconds"`
	Rollout      float64 `json:"rollout_seconds"` // of a batch, as the pool delivers it
	Step         float64 `json:"step_seconds"`
	Bound        string  `json:"bound_by"`
	Validation   float64 `json:"validation_seconds"`
	Hours        float64 `json:"hours"`
}

// Estimate returns the times of a run. Judging, tools, swaps of weights, checkpoints and failures are left out: `steady simulate` has them.
func Estimate(r Rates, run Run) Times {
	var t Times
	responses := float64(run.Problems * run.Group)
	context := run.MeanPrompt + run.MeanResponse/2
	length := run.MeanPrompt + run.MeanResponse
	t.TokensStep = responses * float64(length)
	t.PromptRate = r.Prompts(run.MeanPrompt)
	t.Update = r.Update(t.TokensStep, length)
	t.TrainRate = t.TokensStep / t.Update

	batches := 1
	if run.Async {
		batches += run.Prefill
	}
	samplers := float64(run.Samplers)
	each := responses / samplers // responses of a batch on one GPU
	fits := float64(run.Together)
	t.TogetherMean = min(fits, each*float64(batches))
	if !run.Async { // towards its end a batch has its long responses only
		t.TogetherMean = min(t.TogetherMean, max(1, each*float64(run.MeanResponse)/float64(run.MaxResponse)))
	}
	t.DecodeStep = r.DecodeStep(int(math.Round(t.TogetherMean)), context)
	t.ResponseRate = 1 / t.DecodeStep
	t.DecodeRate = t.TogetherMean / t.DecodeStep
	// One prompt a problem: the responses of a group share it.
	prompts := float64(run.Problems*run.MeanPrompt) / samplers / t.PromptRate
	pool := prompts + responses*float64(run.MeanResponse)/samplers/t.DecodeRate
	latency := prompts + float64(run.MaxResponse)*t.DecodeStep // of the longest response
	t.Rollout = max(pool, latency/float64(batches))
	switch {
	case !run.Async || run.Shared:
		t.Step, t.Bound = t.Rollout+t.Update, "rollout and update in turn"
	case t.Update >= t.Rollout:
		t.Step, t.Bound = t.Update, "the update"
	case pool >= latency/float64(batches):
		t.Step, t.Bound = t.Rollout, "the rate of the rollout GPUs"
	default:
		t.Step, t.Bound = t.Rollout, "the longest response of a batch"
	}
	devEach := min(fits, math.Ceil(float64(run.DevProblems)/samplers))
	devStep := r.DecodeStep(int(devEach), context)
	t.Validation = float64(run.DevProblems*run.MeanPrompt)/samplers/t.PromptRate +
		max(float64(run.DevProblems*run.MeanResponse)/samplers/devEach, float64(run.MaxResponse))*devStep
	t.Hours = (float64(run.Steps)*t.Step + float64(run.Validations)*t.Validation) / 3600
	return t
}

// Disk is what a run leaves in the store, in bytes.
type Disk struct {
	Checkpoints  float64 `json:"checkpoints"`  // those that are kept, and one that is being written
	Weights      float64 `json:"weights"`      // published versions, at most, between two checkpoints
	Trajectories float64 `json:"trajectories"` // with their records; they are never removed
	Export       float64 `json:"export"`
}

// Sum is the whole.
func (d Disk) Sum() float64 { return d.Checkpoints + d.Weights + d.Trajectories + d.Export }

// Keep is what the disk depends on.
type Keep struct {
	Steps, CheckpointEvery, Checkpoints, MilestoneEvery, Threshold int
	Record                                                         int
	Responses, DevResponses                                        int // sampled in the whole run
	MeanResponse                                                   int
}

// DiskOf returns the disk of a run: 12 bytes a weight for a checkpoint, 2 for a version, and 26 bytes and 8 for each entry of the record for a sampled token
// (packages checkpoint, weights and trajectory), before compression, which gains little on them.
func DiskOf(weights int, k Keep) Disk {
	w := float64(weights)
	kept := k.Checkpoints + 1
	if k.MilestoneEvery > 0 {
		kept += k.Steps / k.MilestoneEvery
	}
	versions := min(k.Steps+1, k.CheckpointEvery+k.Threshold+2)
	tokens := float64(k.Responses) * float64(k.MeanResponse)
	dev := float64(k.DevResponses) * float64(k.MeanResponse)
	return Disk{
		Checkpoints: 12 * w * float64(min(kept, k.Steps/max(k.CheckpointEvery, 1)+2)), Weights: 2 * w * float64(versions),
		Trajectories: tokens*float64(26+8*k.Record) + dev*26, Export: 2 * w,
	}
}
