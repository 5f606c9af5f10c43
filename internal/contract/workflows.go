package contract

import (
	"fmt"

	"github.com/steadyrl/steady/internal/record"
)

// LoopInput starts or continues TrainLoop.
type LoopInput struct {
	Spec  RunSpec   `json:"spec"`
	State LoopState `json:"state"`
}

// RunState is what a TrainRun that continues as new between two lineages hands on beside its input. Its size is bounded, as that of its parts.
type RunState struct {
	Spec     RunSpec  `json:"spec"` // of the lineage that begins
	Progress Progress `json:"progress"`
	Settings Settings `json:"settings"`
	StopAt   int      `json:"stop_at,omitempty"`
	Events   int      `json:"events,omitempty"` // number of the newest event
	// PastTrained and PastDrops are the trajectories trained and groups dropped in the lineages that have ended.
	PastTrained int `json:"past_trained,omitempty"`
	PastDrops   int `json:"past_drops,omitempty"`
}

// LoopState is the whole truth of the step loop; continue-as-new hands on nothing else.
type LoopState struct {
	Step      int           `json:"step"`    // last step that was trained and published
	Started   bool          `json:"started"` // prefill was submitted
	Cursor    record.Cursor `json:"cursor"`
	NextGroup int           `json:"next_group"`
	// Open are the groups that are neither trained nor dropped, by number.
	Open []OpenGroup `json:"open,omitempty"`
	// Submitted and Dropped wait for the next ledger record.
	Submitted []record.Submitted `json:"submitted,omitempty"`
	Dropped   []record.Drop      `json:"dropped,omitempty"`

	Settings

	Faults []FaultCount `json:"faults,omitempty"` // of the newest steps, oldest first
	Alarm  string       `json:"alarm,omitempty"`  // why the loop has paused itself

	Trainer  Trainer  `json:"trainer"`
	Paused   bool     `json:"paused,omitempty"`
	StopAt   int      `json:"stop_at,omitempty"`  // 0: at the last step of the spec
	Dev      []DevRow `json:"dev,omitempty"`      // at most LoopDevRows; from older builds all
	Untold   []DevRow `json:"untold,omitempty"`   // rows that TrainRun was not told of, at most LoopDevRows
	Restarts int      `json:"restarts,omitempty"` // trainers acquired after the first
	Drops    int      `json:"drops,omitempty"`    // groups dropped in all
	Trained  int      `json:"trained,omitempty"`  // trajectories trained
	Last     LastStep `json:"last"`
	Events   int      `json:"events,omitempty"` // number of the next event
	AskAt    int64    `json:"ask_at,omitempty"` // unix seconds: when silent groups are asked about next
}

// FaultCount is the number of groups lost to infrastructure faults while a step was in progress.
type FaultCount struct {
	Step   int `json:"step"`
	Groups int `json:"groups"`
}

// Settings are what messages have changed of the configuration. The zero value changes nothing.
type Settings struct {
	Rates     []Rate `json:"rates,omitempty"`     // ordered by step; at most MaxRates
	Threshold int    `json:"threshold,omitempty"` // 0: as configured
	Prefill   *int   `json:"prefill,omitempty"`   // nil: as configured
}

// Rate is a learning rate that holds from the update of a step on.
type Rate struct {
	From         int     `json:"from"`
	LearningRate float64 `json:"learning_rate"`
}

// MaxRates bounds the changes of the learning rate that lie ahead.
const MaxRates = 16

// OpenGroup is a group in flight or finished.
type OpenGroup struct {
	GroupRef
	Done   bool   `json:"d,omitempty"`
	Failed string `json:"f,omitempty"` // reason, if it cannot be trained
	Tokens int    `json:"k,omitempty"`
	At     int64  `json:"a,omitempty"` // unix seconds of its submission; 0 from older builds
	// Mark is that of the group when it was last asked about, 0 before.
	Mark  uint32 `json:"m,omitempty"`
	Named bool   `json:"w,omitempty"` // an event names it as standing still
}

// LastStep is what people see of the newest step.
type LastStep struct {
	RewardMean *float64 `json:"reward_mean,omitempty"`
	ZeroSpread *float64 `json:"zero_spread_share,omitempty"`
	LagMean    *float64 `json:"lag_mean,omitempty"`
	GradNorm   *float64 `json:"grad_norm,omitempty"`
	Correction *float64 `json:"sc_correction,omitempty"`
	Entropy    *float64 `json:"entropy,omitempty"`
	Seconds    *float64 `json:"seconds,omitempty"` // whole step
	Weights    string   `json:"weights_digest,omitempty"`
	State      string   `json:"state_digest,omitempty"`
}

// DevRow is one validation in the table that people see.
type DevRow struct {
	Name     string  `json:"name"`
	Version  int     `json:"version"`
	Problems int     `json:"problems"`
	Solved   int     `json:"solved"`
	Acc      float64 `json:"acc"`
	PassRate float64 `json:"pass_rate"`
	FormatOK float64 `json:"format_ok"`
	ToolUsed int     `json:"tool_used"`
	CutShare float64 `json:"length_cut"`
}

// LoopOutput is the end of the step loop. Dev has at most LoopDevRows.
type LoopOutput struct {
	Step     int      `json:"step"`
	Dev      []DevRow `json:"dev"`
	Weights  string   `json:"weights_digest"`
	State    string   `json:"state_digest"`
	Trained  int      `json:"trained"`
	Drops    int      `json:"drops"`
	Restarts int      `json:"restarts"`
}

// RunOutput is the result of TrainRun. Dev has at most MaxDevRows. After a rollback it is that of the newest lineage, which Lineage names, as are
// Trained and Drops; TrainedAll and DropsAll count all lineages.
type RunOutput struct {
	Step          int      `json:"step"`
	Dev           []DevRow `json:"dev"`
	StateDigest   string   `json:"state_digest"`
	WeightsDigest string   `json:"weights_digest"`
	Export        string   `json:"export"`
	Report        string   `json:"report"`
	Trained       int      `json:"trained"` // trajectories
	Drops         int      `json:"drops"`   // groups
	Lineage       string   `json:"lineage,omitempty"`
	TrainedAll    int      `json:"trained_all,omitempty"`
	DropsAll      int      `json:"drops_all,omitempty"`
}

// Progress answers the query and feeds the display. The signal of the name has only the rows of Dev that are new; from older builds all.
type Progress struct {
	Phase    string   `json:"phase"`
	Lineage  string   `json:"lineage,omitempty"` // empty from older builds, which have one
	Step     int      `json:"step"`
	Steps    int      `json:"steps"`
	Paused   bool     `json:"paused"`
	Trainer  string   `json:"trainer,omitempty"`
	Open     int      `json:"open_groups"`
	Done     int      `json:"finished_groups"`
	Drops    int      `json:"drops"`
	Trained  int      `json:"trained"`
	Dev      []DevRow `json:"dev,omitempty"`
	Last     LastStep `json:"last"`
	Dataset  string   `json:"dataset,omitempty"`
	Settings Settings `json:"settings,omitzero"`
	Alarm    string   `json:"alarm,omitempty"` // why the loop has paused itself
	// Stalled names what makes no progress, a line each.
	Stalled []string `json:"stalled,omitempty"`
}

// Control is a command from TrainRun to its loop.
type Control struct {
	Pause  bool `json:"pause,omitempty"`
	Resume bool `json:"resume,omitempty"`
	StopAt int  `json:"stop_at,omitempty"`
	// Rate, if its learning rate is not 0, replaces all rates from its step on; From 0 is the next step that can have it.
	Rate      Rate `json:"rate,omitzero"`
	Threshold int  `json:"threshold,omitempty"`
	Prefill   *int `json:"prefill,omitempty"`
}

// The requests below refuse keys that they do not have, and values of another type: a misspelt step would be 0 and end the run at once. Doubt is that, or
// what else is wrong with one, see strict; nil: nothing.

// NoRequest is the input of a command that has none: nothing, null or an object without a key.
type NoRequest struct{ doubt error }

// UnmarshalJSON refuses every key.
func (r *NoRequest) UnmarshalJSON(data []byte) (err error) {
	type plain NoRequest
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt is as that of the other requests.
func (r NoRequest) Doubt() error { return r.doubt }

// StopRequest ends the run after a step: Step 0 means after the step in progress.
type StopRequest struct {
	Step int `json:"step"`

	doubt error
}

// UnmarshalJSON refuses other keys.
func (r *StopRequest) UnmarshalJSON(data []byte) (err error) {
	type plain StopRequest // without this method
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt says what an older build would have overlooked.
func (r StopRequest) Doubt() error { return r.doubt }

// RollbackRequest goes back to the state after a step. The step has to be given: 0 is a value.
type RollbackRequest struct {
	Step *int `json:"step"`

	doubt error
}

// UnmarshalJSON refuses other keys.
func (r *RollbackRequest) UnmarshalJSON(data []byte) (err error) {
	type plain RollbackRequest
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt says what an older build would have overlooked.
func (r RollbackRequest) Doubt() error { return r.doubt }

// RollbackResult names the lineage that goes on from there.
type RollbackResult struct {
	Lineage string `json:"lineage"`
	Parent  string `json:"parent"` // lineage
	Step    int    `json:"step"`
}

// RateRequest sets the learning rate from a step on. FromStep 0 is the next step that is not sealed.
type RateRequest struct {
	LearningRate float64 `json:"learning_rate"`
	FromStep     int     `json:"from_step"`

	doubt error
}

// MinRate is the smallest learning rate: trainers compute with 32 bits, in which a smaller one loses digits or is 0.
const MinRate = 0x1p-126

// UnmarshalJSON refuses other keys.
func (r *RateRequest) UnmarshalJSON(data []byte) (err error) {
	type plain RateRequest
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt says what an older build would have overlooked.
func (r RateRequest) Doubt() error {
	if r.doubt == nil && r.LearningRate > 0 && r.LearningRate < MinRate {
		return fmt.Errorf("learning_rate must be at least %.3g, got %g: trainers compute with 32 bits", MinRate, r.LearningRate)
	}
	return r.doubt
}

// ThresholdRequest sets the off-policy threshold, in steps.
type ThresholdRequest struct {
	Threshold int `json:"threshold"`

	doubt error
}

// UnmarshalJSON refuses other keys.
func (r *ThresholdRequest) UnmarshalJSON(data []byte) (err error) {
	type plain ThresholdRequest
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt says what an older build would have overlooked.
func (r ThresholdRequest) Doubt() error { return r.doubt }

// PrefillRequest sets how many batches are sent out ahead of the one that the step collects. It has to be given: 0 is a value.
type PrefillRequest struct {
	Prefill *int `json:"prefill"`

	doubt error
}

// UnmarshalJSON refuses other keys.
func (r *PrefillRequest) UnmarshalJSON(data []byte) (err error) {
	type plain PrefillRequest
	r.doubt, err = strict(data, (*plain)(r))
	return err
}

// Doubt says what an older build would have overlooked.
func (r PrefillRequest) Doubt() error { return r.doubt }

// GroupDone tells the loop that a group has finished.
type GroupDone struct {
	N int `json:"n"`
	// Tag tells a group apart from one of the same number in a history that was reset.
	Tag    int    `json:"tag"`
	Failed string `json:"failed,omitempty"` // fault kind, if the group cannot be trained
	Tokens int    `json:"tokens"`
}

// GroupInput starts RolloutGroup.
type GroupInput struct {
	RunKey
	GroupRef
	Samples    int      `json:"samples"`
	MinVersion int      `json:"min_version"`
	Pin        bool     `json:"pin,omitempty"` // MinVersion is the only version that may answer
	Timeouts   Timeouts `json:"timeouts"`
}

// GroupOutput is the end of RolloutGroup, for people who look at it.
type GroupOutput struct {
	RewardMean *float64 `json:"reward_mean,omitempty"`
	Sampled    int      `json:"sampled"`
	Ended      string   `json:"ended"` // trained_or_waiting, infrastructure, run_closed
}

// ValidateInput starts Validate.
type ValidateInput struct {
	RunKey
	Name     string   `json:"name"`
	Version  int      `json:"version"`
	Problems int      `json:"problems"`
	Chunk    int      `json:"chunk"`
	Source   string   `json:"source"`
	Timeouts Timeouts `json:"timeouts"`
}

// ExportInput starts ExportModel.
type ExportInput struct {
	Spec RunSpec `json:"spec"`
	Step int     `json:"step"`
}

// ExportOutput is a verified export and the dev set run from its files.
type ExportOutput struct {
	ExportResult
	Dev DevRow `json:"dev"`
}
