package record

import (
	"fmt"
	"math"
	"reflect"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rl"
)

// Run is the record of a run id. It is written when the run starts and owns the id: the same id started
// anew by a different workflow execution is refused.
type Run struct {
	Run          string `json:"run"`
	Owner        string `json:"owner"` // first execution id of the TrainRun workflow
	Lineage      string `json:"lineage"`
	ConfigDigest string `json:"config_digest"`
	Recipe       string `json:"recipe,omitempty"`
	Steady       string `json:"steady"` // version of the binary
	Engine       string `json:"engine"` // backend
	BaseModel    string `json:"base_model"`
	Started      string `json:"started"` // RFC 3339
	// Parent, if set, is the checkpoint this lineage started from.
	Parent *Parent `json:"parent,omitempty"`
	// Opened names the rollback that opened the lineage, empty for a first lineage; Start is where its data begins, nil if
	// the parent's ledger says it.
	Opened string `json:"opened,omitempty"`
	Start  *Start `json:"start,omitempty"`
}

// Start is the position in the data at which a lineage begins.
type Start struct {
	Cursor    Cursor `json:"cursor"`
	NextGroup int    `json:"next_group"`
}

// Worker is a process that served a lineage, as it was when it first did since its start. A later start that is the same
// changes nothing.
type Worker struct {
	Host   string `json:"host"`
	Steady string `json:"steady"` // version of the binary
	Engine string `json:"engine"` // backend, and what decides about its speed
	// Python and Sandbox are the interpreter and what the sandbox enforces; empty for a process that runs no programs.
	Python  string `json:"python,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

// Base names the files of the base model that a lineage keeps, so that a changed one is noticed. A lineage of an older
// build has no such record.
type Base struct {
	Files []artifact.Ref `json:"files"` // by name
}

// Dataset names the prepared data of a lineage.
type Dataset struct {
	Dir   string `json:"dir"` // store directory
	Key   string `json:"key"`
	Rows  int    `json:"rows"`
	Train int    `json:"train"`
	Dev   int    `json:"dev"`
}

// Parent names the checkpoint that a lineage started from.
type Parent struct {
	Run     string `json:"run"`
	Lineage string `json:"lineage"`
	Step    int    `json:"step"`
}

// Version is the manifest of published weights.
type Version struct {
	Version int          `json:"version"`
	Digest  string       `json:"digest"` // of the BF16 weights
	File    artifact.Ref `json:"file"`
	// ProbeTokens and ProbeLogProbs are the fixed prompt and the log-probabilities that the publisher computed on it;
	// an engine that loads the version computes them again and compares.
	ProbeTokens   []int32   `json:"probe_tokens"`
	ProbeLogProbs []float32 `json:"probe_log_probs"`
}

// Live points to the version that engines serve.
type Live struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"`
}

// Fence says which trainer epoch may write results.
type Fence struct {
	Epoch  int    `json:"epoch"`
	Holder string `json:"holder"`
}

// Sample is one trajectory of a sealed batch.
type Sample struct {
	Group      int     `json:"group"`
	Index      int     `json:"index"` // row in the group's trajectory file
	Reward     float64 `json:"reward"`
	Advantage  float64 `json:"advantage"`
	Tokens     int     `json:"tokens"`  // whole sequence
	Sampled    int     `json:"sampled"` // of these, sampled by the model
	MinVersion int     `json:"min_version"`
	MaxVersion int     `json:"max_version"`
}

// Group is one group of a sealed batch.
type Group struct {
	N          int          `json:"n"`
	Problem    int          `json:"problem"`
	ProblemID  string       `json:"problem_id"`
	Tag        int          `json:"tag"`
	Submission int          `json:"submission"`
	File       artifact.Ref `json:"file"`     // trajectories
	Verdicts   artifact.Ref `json:"verdicts"` // judge's record
}

// Sealed is everything that the update of a step depends on besides the trainer's state. It is written
// once and never changes.
type Sealed struct {
	Step      int          `json:"step"`
	Groups    []Group      `json:"groups"`
	Samples   []Sample     `json:"samples"`
	Objective rl.Objective `json:"objective"`
	Optim     rl.AdamW     `json:"optim"`
	Plan      engine.Plan  `json:"plan"`
	// Temperature is the one the batch was sampled with; the trainer divides its logits by it.
	Temperature float64 `json:"temperature"`
	// Rollout are the metrics of the batch that need no trainer.
	Rollout BatchMetrics `json:"rollout"`
}

// Result is the outcome of the update of a step. It is written once, with the published weights.
type Result struct {
	Step          int           `json:"step"`
	BatchDigest   string        `json:"batch_digest"`
	StateDigest   string        `json:"state_digest"`   // FP32 masters, both moments, step counter
	WeightsDigest string        `json:"weights_digest"` // published BF16
	Weights       artifact.Ref  `json:"weights"`
	Metrics       UpdateMetrics `json:"metrics"`
	// Trainer says who computed it; Replayed is true if the state came from a replay in the same call.
	Trainer  string `json:"trainer"`
	Replayed int    `json:"replayed,omitempty"` // sealed batches replayed before this update
	// Plan is that of the update where it is not the sealed one: some micro-batch did not fit in memory. A replay uses it.
	Plan *engine.Plan `json:"plan,omitempty"`
	// Choices are those that the update was computed with (engine.Chooser), if the engine makes any. A replay uses them.
	Choices *artifact.Ref `json:"choices,omitempty"`
	// Previous is the seal of the result of the step before, so that no result can be exchanged alone. It is empty for the first step of a lineage, and
	// if the result before has no seal or could not be read.
	Previous string `json:"previous,omitempty"`
}

// Computed is what decides about the bits of an update besides its sealed batch; see the fields of Result. It is written once.
type Computed struct {
	Plan    *engine.Plan  `json:"plan,omitempty"`
	Choices *artifact.Ref `json:"choices,omitempty"`
}

// BatchMetrics are the metrics of spec section 6 that the batch itself gives.
type BatchMetrics struct {
	RewardMean      *float64 `json:"reward_mean" doc:"mean reward of the batch's trajectories"`
	RewardSpread    *float64 `json:"reward_spread" doc:"mean over groups of the standard deviation of rewards"`
	ZeroSpreadShare *float64 `json:"zero_spread_share" doc:"share of groups whose rewards are all equal"`
	SolvedShare     *float64 `json:"solved_share" doc:"share of trajectories that passed every test"`
	LagMean         *float64 `json:"lag_mean" doc:"mean over sampled tokens of the trainer version minus the token's version"`
	LagMax          *float64 `json:"lag_max" doc:"largest lag of a sampled token"`
	SpanMax         *float64 `json:"span_max" doc:"largest number of versions inside one trajectory"`
	ResponseTokens  *float64 `json:"response_tokens" doc:"mean response length, tokens, observations included"`
	ResponseMax     *float64 `json:"response_max" doc:"longest response, tokens"`
	LengthCutShare  *float64 `json:"length_cut_share" doc:"share of trajectories cut at the length limit"`
	UnjudgeableRate *float64 `json:"unjudgeable_share" doc:"share of trajectories without a judgeable submission"`
	ToolShare       *float64 `json:"tool_share" doc:"share of trajectories in which a tool process started"`
	// Turns and calls of the tool. Shares of calls are absent in a batch without calls.
	Turns             *float64 `json:"turns_mean" doc:"mean number of assistant turns in a trajectory"`
	TurnTokens        *float64 `json:"turn_tokens" doc:"mean number of tokens that the model sampled in a turn"`
	CallShare         *float64 `json:"call_share" doc:"share of turns that hold a call of a tool, whatever became of it"`
	Programs          *float64 `json:"programs_mean" doc:"mean number of programs that a trajectory ran"`
	CallRan           *float64 `json:"call_ran_share" doc:"share of calls that could be read and were run"`
	CallMalformed     *float64 `json:"call_malformed_share" doc:"share of calls that were no JSON object, had no name, or were not closed"`
	CallUnknownTool   *float64 `json:"call_unknown_tool_share" doc:"share of calls of a tool that does not exist"`
	CallBadArguments  *float64 `json:"call_bad_arguments_share" doc:"share of calls whose arguments could not be used"`
	CallInThinking    *float64 `json:"call_in_thinking_share" doc:"share of calls inside a think block that was not closed"`
	CallNotRun        *float64 `json:"call_not_run_share" doc:"share of calls that ended their trajectory before they were run"`
	CallIgnored       *float64 `json:"call_ignored_share" doc:"share of turns with a call that held further calls, which were ignored"`
	CallRepeated      *float64 `json:"call_repeated_share" doc:"share of calls that an earlier turn of their trajectory had too"`
	ParseFailureShare *float64 `json:"parse_failure_share" doc:"share of trajectories ended by three unreadable calls in a row"`
	ProgramFailed     *float64 `json:"program_failed_share" doc:"share of programs that a trajectory ran whose outcome was not ok"`
	SampleSeconds     *float64 `json:"sample_seconds" doc:"mean time that a trajectory spent sampling"`
	TurnSeconds       *float64 `json:"turn_seconds" doc:"mean time that a turn spent sampling"`
	ToolSeconds       *float64 `json:"tool_seconds" doc:"mean time that a trajectory spent in its programs"`
	ToolQueueSeconds  *float64 `json:"tool_queue_seconds" doc:"mean time that a trajectory's programs waited for a free core"`
	JudgeSeconds      *float64 `json:"judge_seconds" doc:"mean time that the programs of a submission ran in the judge, as their limits count it"`
	SampledTokens     *float64 `json:"sampled_tokens" doc:"tokens sampled by the model in the batch"`
	RolloutRate       *float64 `json:"rollout_tokens_per_second" doc:"sampled tokens per second of generation, summed over a group's samples"`
	QueueSeconds      *float64 `json:"judge_queue_seconds" doc:"mean time that a submission's programs waited for a free core"`
	WaitSeconds       *float64 `json:"batch_wait_seconds" doc:"time the trainer waited for the batch"`
	Drops             *float64 `json:"drops" doc:"groups dropped since the step before"`
}

// UpdateMetrics are the metrics of spec section 6 that the trainer gives.
type UpdateMetrics struct {
	Loss         *float64 `json:"loss" doc:"token-mean loss"`
	GradNorm     *float64 `json:"grad_norm" doc:"global gradient norm before clipping"`
	ClipFactor   *float64 `json:"clip_factor" doc:"factor applied to the gradient"`
	Correction   *float64 `json:"sc_correction" doc:"token-mean of the Score-Centering correction C"`
	CorrectionA  *float64 `json:"sc_correction_abs" doc:"token-mean of |C| times |advantage|"`
	Uncovered    *float64 `json:"uncovered_mass" doc:"token-mean of the sampler's mass outside its record"`
	TrainerTail  *float64 `json:"trainer_tail_mass" doc:"token-mean of the trainer's mass outside the record"`
	Entropy      *float64 `json:"entropy" doc:"token-mean entropy of the trainer's distribution, nats"`
	LogProbGap   *float64 `json:"logprob_gap" doc:"token-mean of |trainer - sampler| log-probability of sampled tokens"`
	KL           *float64 `json:"sampled_kl" doc:"token-mean of sampler minus trainer log-probability"`
	OutsideShare *float64 `json:"outside_record_share" doc:"share of sampled tokens outside their record"`
	FloorShare   *float64 `json:"floor_share" doc:"share of tokens with an active tail floor"`
	MaxAlpha     *float64 `json:"max_alpha" doc:"largest tail coefficient"`
	TrainRate    *float64 `json:"train_tokens_per_second" doc:"tokens of the batch per second of the update"`
	Seconds      *float64 `json:"update_seconds" doc:"wall time of the update"`
}

// Drop is a group that will never be trained.
type Drop struct {
	N      int    `json:"n"`
	Reason string `json:"reason"` // stale, infrastructure, run_ended
	Tag    int    `json:"tag"`
	Tokens int    `json:"tokens,omitempty"` // sampled tokens, 0 if unknown: it never finished
	// Finished is false for a group that was still running.
	Finished bool `json:"finished"`
}

// Submitted is a group that was sent out.
type Submitted struct {
	N          int `json:"n"`
	Problem    int `json:"problem"`
	Tag        int `json:"tag"`
	Submission int `json:"submission"`
}

// Cursor is the position in the data: the next problem is the returned one that came back first, else
// number Next of the permutation of Epoch.
type Cursor struct {
	Epoch    int        `json:"epoch"`
	Next     int        `json:"next"`
	Returned []Returned `json:"returned,omitempty"`
}

// Returned is a problem whose group was dropped.
type Returned struct {
	Problem    int `json:"problem"`
	Submission int `json:"submission"` // of the next submission
}

// Ledger is what happened to groups between the seal of the step before and that of this step.
type Ledger struct {
	Step      int         `json:"step"` // 0 in the record of the end
	Submitted []Submitted `json:"submitted,omitempty"`
	Dropped   []Drop      `json:"dropped,omitempty"`
	Trained   []int       `json:"trained,omitempty"` // group numbers
	// TrainedTokens are the sampled tokens of the groups in Trained; absent in records of older builds.
	TrainedTokens []int  `json:"trained_tokens,omitempty"`
	Cursor        Cursor `json:"cursor"` // after this step's submissions
	NextGroup     int    `json:"next_group"`
}

// Validation is the outcome of the dev set at one version.
type Validation struct {
	Name     string         `json:"name"` // six-digit step, or "export"
	Version  int            `json:"version"`
	Problems int            `json:"problems"`
	Metrics  DevMetrics     `json:"metrics"`
	Items    []DevItem      `json:"items"`
	Units    []string       `json:"units"` // where trajectories and verdicts are
	Seconds  float64        `json:"seconds"`
	Source   string         `json:"source"` // "published" or "export"
	Weights  string         `json:"weights_digest"`
	Files    []artifact.Ref `json:"files,omitempty"`
}

// DevMetrics are the numbers of spec section 5. Counts are problems unless named otherwise.
type DevMetrics struct {
	Solved          int     `json:"solved"`
	Acc             float64 `json:"acc"`
	PassRate        float64 `json:"pass_rate"`
	FormatOK        float64 `json:"format_ok"`
	ToolUsed        int     `json:"tool_used"`
	RuntimeErrors   int     `json:"runtime_errors"`
	TimeLimits      int     `json:"time_limits"`
	RuntimeTests    int     `json:"runtime_error_tests"`
	TimeTests       int     `json:"time_limit_tests"`
	BudgetExhausted int     `json:"budget_exhausted"`
	LengthCut       int     `json:"length_cut"`
	MeanTokens      float64 `json:"mean_response_tokens"`
}

// DevItem is one problem of a validation.
type DevItem struct {
	Problem string `json:"problem"`
	Kind    string `json:"kind"`
	Passed  int    `json:"passed"`
	Total   int    `json:"total"`
}

// ReplayMismatch is the kind of the event that a replayed step had other bits than were recorded.
const ReplayMismatch = "replay_mismatch"

// Event is a failure or a recovery that a person should see.
type Event struct {
	Time    string `json:"time"` // RFC 3339 with fractions
	Kind    string `json:"kind"` // fault kind, or "recovered", "restored", "replayed", "rebuilt", "reacquired"
	Where   string `json:"where"`
	Message string `json:"message"`
	Step    int    `json:"step,omitempty"`
}

// Num returns a pointer to v, or nil if v is not finite.
func Num(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// CheckFinite returns an error of kind Numeric that names the first float in the struct v that is
// NaN or infinite. v may hold structs, slices and pointers.
func CheckFinite(v any) error { return checkFinite(reflect.ValueOf(v), "") }

func checkFinite(v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fault.New(fault.Numeric, "record.CheckFinite", "%s is %v", path, f)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkFinite(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := checkFinite(v.Field(i), path+"."+v.Type().Field(i).Name); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := checkFinite(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// Metric is a named number with its explanation, for tables and charts.
type Metric struct {
	Name, Doc string
	Value     *float64
}

// Metrics lists the fields of a metrics struct (BatchMetrics or UpdateMetrics) in order.
func Metrics(v any) []Metric {
	rv := reflect.ValueOf(v)
	var out []Metric
	for i := range rv.NumField() {
		f := rv.Type().Field(i)
		p, ok := rv.Field(i).Interface().(*float64)
		if !ok {
			continue
		}
		out = append(out, Metric{Name: f.Tag.Get("json"), Doc: f.Tag.Get("doc"), Value: p})
	}
	return out
}
