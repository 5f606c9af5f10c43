package contract

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/record"
)

// The activities, by the queue they run on.
var (
	// QueueControl.
	StartRunActivity            = Activity[StartRunRequest, RunSpec]{"StartRun"}
	OpenLineageActivity         = Activity[OpenLineageRequest, OpenLineageResult]{"OpenLineage"}
	SealBatchActivity           = Activity[SealBatchRequest, SealBatchResult]{"SealBatch"}
	CloseLedgerActivity         = Activity[CloseLedgerRequest, Done]{"CloseLedger"}
	PublishVersionActivity      = Activity[PublishRequest, Done]{"PublishVersion"}
	SummarizeValidationActivity = Activity[SummarizeRequest, SummarizeResult]{"SummarizeValidation"}
	InspectActivity             = Activity[InspectRequest, InspectResult]{"Inspect"}
	RecordEventActivity         = Activity[EventRequest, Done]{"RecordEvent"}
	ApplyRetentionActivity      = Activity[RetentionRequest, Done]{"ApplyRetention"}
	WriteReportActivity         = Activity[ReportRequest, ReportResult]{"WriteReport"}
	OpenStudyActivity           = Activity[OpenStudyRequest, StudySpec]{"OpenStudy"}
	PrepareStudyRunActivity     = Activity[StudyRunRequest, PreparedRun]{"PrepareStudyRun"}
	CollectStudyRunActivity     = Activity[CollectStudyRunRequest, CollectedRun]{"CollectStudyRun"}
	SummarizeStudyActivity      = Activity[SummarizeStudyRequest, StudyOutput]{"SummarizeStudy"}

	// QueueData.
	PlanDatasetActivity   = Activity[PlanDatasetRequest, PlanDatasetResult]{"PlanDataset"}
	PrepareShardActivity  = Activity[PrepareShardRequest, PrepareShardResult]{"PrepareShard"}
	FinishDatasetActivity = Activity[FinishDatasetRequest, DatasetResult]{"FinishDataset"}

	// QueueRollout.
	GenerateRolloutsActivity = Activity[GenerateRequest, GenerateResult]{"GenerateRollouts"}

	// QueueJudge.
	JudgeRolloutsActivity = Activity[JudgeRequest, JudgeResult]{"JudgeRollouts"}

	// QueueTrainer.
	InitPolicyActivity     = Activity[InitPolicyRequest, InitPolicyResult]{"InitPolicy"}
	AcquireTrainerActivity = Activity[AcquireRequest, Trainer]{"AcquireTrainer"}
	ExportPolicyActivity   = Activity[ExportRequest, ExportResult]{"ExportPolicy"}

	// The queue of an acquired trainer.
	UpdatePolicyActivity   = Activity[UpdateRequest, UpdateResult]{"UpdatePolicy"}
	SaveCheckpointActivity = Activity[CheckpointRequest, CheckpointResult]{"SaveCheckpoint"}
)

// Done is the result of an activity that has nothing to say.
type Done struct{}

// RunKey names a lineage of a run; all store names follow from it.
type RunKey struct {
	Run     string `json:"run"`
	Lineage string `json:"lineage"`
}

// Key returns k; messages that embed a RunKey have it too.
func (k RunKey) Key() RunKey { return k }

// Scope is what the ids of the lineage's workflows begin with: the run's name, and for a later lineage that too. The ids of two
// lineages never clash, so a workflow of an old one that is still ending tells nobody of the new one anything.
func (k RunKey) Scope() string {
	if k.Lineage == "" || k.Lineage == record.FirstLineage {
		return k.Run
	}
	return k.Run + "/" + k.Lineage
}

// ParseScope is the inverse of RunKey.Scope.
func ParseScope(scope string) RunKey {
	if run, lineage, ok := strings.Cut(scope, "/"); ok {
		return RunKey{Run: run, Lineage: lineage}
	}
	return RunKey{Run: scope, Lineage: record.FirstLineage}
}

// Layout returns the store names of the lineage.
func (k RunKey) Layout() record.Layout { return record.Layout{Run: k.Run, Lineage: k.Lineage} }

// StartRunRequest asks for the checked plan of a run. Idempotence: by Run and Owner; the same id with
// another owner is Invalid.
type StartRunRequest struct {
	Run   string          `json:"run"`
	Owner string          `json:"owner"` // first execution id of the workflow
	Input json.RawMessage `json:"input"` // the configuration as `steady config print --json` prints it
}

// OpenLineageRequest asks for a lineage that begins with the state after Step of the lineage of RunKey. Nothing of that one is changed,
// and it may still be training. Idempotence: by ID.
type OpenLineageRequest struct {
	RunKey
	Step int    `json:"step"`
	ID   string `json:"id"` // of the update
}

// OpenLineageResult is the new lineage, and where its data begins.
type OpenLineageResult struct {
	Lineage string       `json:"lineage"`
	Start   record.Start `json:"start"`
}

// RunSpec is what the workflows need of the configuration; activities read the whole from the store.
type RunSpec struct {
	RunKey
	Recipe string `json:"recipe,omitempty"`
	Mode   string `json:"mode"` // async or sync

	// FirstStep is the step whose checkpoint the lineage starts from, 0 for the base model; Steps is the last.
	FirstStep       int `json:"first_step"`
	Steps           int `json:"steps"`
	ValidateEvery   int `json:"validate_every"`
	CheckpointEvery int `json:"checkpoint_every"`

	Seed          uint64 `json:"seed"`
	GroupSize     int    `json:"group_size"`
	BatchProblems int    `json:"batch_problems"`
	Prefill       int    `json:"prefill"` // batches; in sync mode the lag
	// Lag, in sync mode, is the age in versions that every batch has; see TrainLoop.
	Lag       int `json:"lag,omitempty"`
	Threshold int `json:"threshold"` // off-policy threshold, steps
	// Policy says what becomes of groups that are too old: PolicyDrop (also ""), PolicyWait or PolicyCancelEarly.
	Policy string `json:"policy,omitempty"`
	// FaultLimit groups may be lost to infrastructure faults within FaultWindow steps; more do FaultAction: pause or fail. 0 in runs of
	// older builds: they fail at more than two batches in one step.
	FaultLimit    int    `json:"fault_limit,omitempty"`
	FaultWindow   int    `json:"fault_window,omitempty"`
	FaultAction   string `json:"fault_action,omitempty"`
	EvalChunk     int    `json:"eval_chunk"`     // dev problems an activity
	ContinueEvery int    `json:"continue_every"` // steps a run of TrainLoop

	// Cursor and NextGroup continue the data of a parent lineage.
	Cursor    record.Cursor `json:"cursor"`
	NextGroup int           `json:"next_group"`

	SearchAttributes bool `json:"search_attributes"` // the namespace has ours

	Timeouts Timeouts `json:"timeouts"`
	// Data is known after the data set is prepared.
	TrainProblems int `json:"train_problems,omitempty"`
	DevProblems   int `json:"dev_problems,omitempty"`
}

// Timeouts bound the activities of a run.
type Timeouts struct {
	Control     time.Duration `json:"control"`      // start to close of small activities
	Shard       time.Duration `json:"shard"`        // start to close of a data shard
	Rollout     time.Duration `json:"rollout"`      // start to close of a group's generation
	Judge       time.Duration `json:"judge"`        // start to close of a group's judging
	Update      time.Duration `json:"update"`       // start to close of an update, replay included
	Export      time.Duration `json:"export"`       // start to close of an export
	Heartbeat   time.Duration `json:"heartbeat"`    // of every activity
	TrainerLost time.Duration `json:"trainer_lost"` // schedule to start on a trainer's own queue
	// Stall is how long there may be no progress, see TrainLoop; 0 in runs of older builds, which do not watch.
	Stall       time.Duration `json:"stall,omitempty"`
	ClosedCheck time.Duration `json:"closed_check"` // how often a group asks whether its loop is open
}

// SealBatchRequest names the groups of a step. Idempotence: the first execution for a step decides; a later
// one returns the recorded batch, whatever it asks for.
type SealBatchRequest struct {
	RunKey
	Step        int           `json:"step"`
	Groups      []GroupRef    `json:"groups"`
	Ledger      record.Ledger `json:"ledger"`
	WaitSeconds float64       `json:"wait_seconds"`
	// LearningRate replaces that of the configuration, if it is not 0.
	LearningRate float64 `json:"learning_rate,omitempty"`
}

// GroupRef identifies a submitted group.
type GroupRef struct {
	N          int `json:"n"`
	Problem    int `json:"p"`
	Tag        int `json:"t"`
	Submission int `json:"s,omitempty"`
}

// Unit is the store unit of the group. It holds the whole identity, so that a history that was reset and
// took another course never meets files of the old one.
func (g GroupRef) Unit() string {
	return record.GroupUnit(g.N, g.Tag, g.Problem, g.Submission)
}

// SealBatchResult refers to the sealed batch.
type SealBatchResult struct {
	Batch      artifact.Ref `json:"batch"`
	Groups     []int        `json:"groups"` // numbers of the groups in it
	RewardMean *float64     `json:"reward_mean"`
	ZeroSpread *float64     `json:"zero_spread_share"`
	LagMean    *float64     `json:"lag_mean"`
	LagMax     *float64     `json:"lag_max"`
	LengthCut  *float64     `json:"length_cut_share"`
}

// CloseLedgerRequest records the groups that were left. Idempotence: written once.
type CloseLedgerRequest struct {
	RunKey
	Ledger record.Ledger `json:"ledger"`
}

// PublishRequest makes a version live. Idempotence: a version that is live already, or older than the
// live one, changes nothing.
type PublishRequest struct {
	RunKey
	Version int    `json:"version"`
	Digest  string `json:"digest"`
	// Began is when the step began, for its trace; zero: unknown.
	Began time.Time `json:"began,omitzero"`
}

// SummarizeRequest asks for the numbers of a validation from its units.
type SummarizeRequest struct {
	RunKey
	Name    string  `json:"name"`
	Version int     `json:"version"`
	Units   int     `json:"units"`
	Source  string  `json:"source"` // published or export
	Seconds float64 `json:"seconds"`
}

// SummarizeResult is what the UI shows of a validation.
type SummarizeResult struct {
	Metrics  record.DevMetrics `json:"metrics"`
	Problems int               `json:"problems"`
}

// InspectRequest asks the server about workflows that have not reported. It changes nothing.
type InspectRequest struct {
	RunKey
	Workflows []string `json:"workflows"` // at most MaxInspect ids
}

// MaxInspect is the most workflows that one request may ask about; the answer must fit a message.
const MaxInspect = 24

// InspectResult has one entry for each workflow asked about, in order.
type InspectResult struct {
	Found []Inspected `json:"found"`
}

// Inspected is what the server knows of the newest execution of a workflow id.
type Inspected struct {
	Status string `json:"status"` // as the server spells it, or "unknown id"
	Open   bool   `json:"open,omitempty"`
	// Doing says in words what the first pending activity is at, its last heartbeat and failure included.
	Doing string `json:"doing,omitempty"`
	// Mark changes with every progress: two equal marks a while apart are a standstill. 0 without a pending activity.
	Mark uint32 `json:"mark,omitempty"`
}

// EventRequest records a failure or recovery. Idempotence: by ID.
type EventRequest struct {
	RunKey
	ID    string       `json:"id"`
	Event record.Event `json:"event"`
}

// RetentionRequest removes what no one can need after Step was trained and Verified is a good checkpoint.
type RetentionRequest struct {
	RunKey
	Step      int `json:"step"`
	Threshold int `json:"threshold"`
}

// ReportRequest writes the report. Final marks the end of the run.
type ReportRequest struct {
	RunKey
	Final bool `json:"final"`
}

// ReportResult says where the report is.
type ReportResult struct {
	Report artifact.Ref `json:"report"`
}

// PlanDatasetRequest asks which shards have to be prepared.
type PlanDatasetRequest struct{ RunKey }

// PlanDatasetResult lists the work. Key identifies the prepared data: inputs, rules, sizes and seed.
type PlanDatasetResult struct {
	Key    string   `json:"key"`
	Shards []string `json:"shards"` // names for people
	Ready  bool     `json:"ready"`  // prepared already
}

// PrepareShardRequest parses, filters and checks the references of one shard. Idempotence: by Key and Shard.
type PrepareShardRequest struct {
	RunKey
	Key   string `json:"key"`
	Shard int    `json:"shard"`
}

// PrepareShardResult counts a shard's rows.
type PrepareShardResult struct {
	Rows int `json:"rows"`
	Kept int `json:"kept"`
}

// FinishDatasetRequest deduplicates, splits and writes. Idempotence: by Key.
type FinishDatasetRequest struct {
	RunKey
	Key    string `json:"key"`
	Shards int    `json:"shards"`
}

// DatasetResult describes the prepared data.
type DatasetResult struct {
	Dir   string `json:"dir"` // store directory
	Rows  int    `json:"rows"`
	Train int    `json:"train"`
	Dev   int    `json:"dev"`
}

// GenerateRequest asks for trajectories of one unit. Idempotence: finished trajectories of the unit are
// kept and never generated again; unfinished ones go on from their newest flush.
type GenerateRequest struct {
	RunKey
	Unit       string `json:"unit"`
	Split      string `json:"split"` // train or dev
	Problems   []int  `json:"problems"`
	Samples    int    `json:"samples"` // responses a problem
	Group      int    `json:"group"`
	Tag        int    `json:"tag"`
	Submission int    `json:"submission"`
	// MinVersion is the oldest version that may start; Pin, if set, the only one that may answer.
	MinVersion int    `json:"min_version"`
	Pin        *int   `json:"pin,omitempty"`
	Source     string `json:"source"` // published or export
	// Loop, if set, is the workflow that must be open; else the activity ends as Stale "run_closed".
	Loop        string        `json:"loop,omitempty"`
	ClosedCheck time.Duration `json:"closed_check,omitempty"`
}

// GenerateResult refers to the unit's trajectories.
type GenerateResult struct {
	File    artifact.Ref `json:"file"`
	Sampled int          `json:"sampled"` // tokens sampled by the model
}

// JudgeRequest asks for the verdicts of a unit. Idempotence: the first complete record stays.
type JudgeRequest struct {
	RunKey
	Unit  string       `json:"unit"`
	Split string       `json:"split"`
	File  artifact.Ref `json:"file"`
}

// JudgeResult refers to the verdicts.
type JudgeResult struct {
	Verdicts   artifact.Ref `json:"verdicts"`
	RewardMean *float64     `json:"reward_mean"`
}

// InitPolicyRequest writes the first checkpoint and publishes it. For a lineage that a rollback opened, the checkpoint of its parent is made
// first, if there is none, by replay of sealed batches. Idempotence: what exists is verified and kept.
type InitPolicyRequest struct {
	RunKey
	Step int `json:"step"`
}

// InitPolicyResult says what the run starts from.
type InitPolicyResult struct {
	Digest     string `json:"digest"` // published weights
	Parameters int    `json:"parameters"`
}

// AcquireRequest asks a trainer host to take the run. Every execution opens a new epoch.
type AcquireRequest struct{ RunKey }

// Trainer is an acquired trainer host.
type Trainer struct {
	Queue string `json:"queue"`
	Host  string `json:"host"`
	Epoch int    `json:"epoch"`
	// Standby: it held the run's state when it was acquired.
	Standby bool `json:"standby,omitempty"`
}

// UpdateRequest trains one sealed batch. Idempotence: exactly once a step, see activities.UpdatePolicy.
type UpdateRequest struct {
	RunKey
	Step  int          `json:"step"`
	Batch artifact.Ref `json:"batch"`
	Epoch int          `json:"epoch"`
}

// UpdateResult is what the loop shows of a step's result.
type UpdateResult struct {
	StateDigest   string   `json:"state_digest"`
	WeightsDigest string   `json:"weights_digest"`
	GradNorm      *float64 `json:"grad_norm"`
	Correction    *float64 `json:"sc_correction"`
	Entropy       *float64 `json:"entropy"`
	LogProbGap    *float64 `json:"logprob_gap"`
	Seconds       *float64 `json:"seconds"`
	Replayed      int      `json:"replayed,omitempty"`
	Restored      bool     `json:"restored,omitempty"`
}

// CheckpointRequest saves and verifies the state after Step. Idempotence: by step and digest.
type CheckpointRequest struct {
	RunKey
	Step  int `json:"step"`
	Epoch int `json:"epoch"`
}

// CheckpointResult names the state.
type CheckpointResult struct {
	StateDigest string `json:"state_digest"`
	Replayed    int    `json:"replayed,omitempty"`
}

// ExportRequest exports the checkpoint of Step. Idempotence: an export that verifies is kept.
type ExportRequest struct {
	RunKey
	Step int `json:"step"`
}

// ExportResult describes a verified export.
type ExportResult struct {
	Dir           string `json:"dir"`
	WeightsDigest string `json:"weights_digest"`
	Tensors       int    `json:"tensors"`
	Bytes         int64  `json:"bytes"`
}
