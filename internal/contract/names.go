package contract

import (
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
)

// Task queues of the roles. A trainer that was acquired has a queue of its own, see TrainerQueue.
const (
	QueueControl = "steady"
	QueueData    = "steady-data"
	QueueRollout = "steady-rollout"
	QueueJudge   = "steady-judge"
	QueueTrainer = "steady-trainer"
)

// TrainerQueue is the queue of one trainer host. The name is stable over restarts of the host, so that a
// restarted worker goes on by itself.
func TrainerQueue(host string) string { return QueueTrainer + "/" + host }

// QueueStandby begins the queues of StandbyQueue.
const QueueStandby = "steady-standby"

// StandbyQueue is where a run that lost its trainer is offered to its standbys first. Only a standby that holds the run's state
// listens to it.
func StandbyQueue(run string) string { return QueueStandby + "/" + run }

// Workflow types.
const (
	TrainRun       = "TrainRun"
	PrepareDataset = "PrepareDataset"
	TrainLoop      = "TrainLoop"
	RolloutGroup   = "RolloutGroup"
	Validate       = "Validate"
	ExportModel    = "ExportModel"
	Study          = "Study"
)

// DatasetID is the id of the workflow that prepares the data of a run.
func DatasetID(run string) string { return run + "/dataset" }

// Workflow ids of a lineage, by its RunKey.Scope: below R for the first lineage of a run R, below R/l1 for the next.
func LoopID(scope string) string                  { return scope + "/train" }
func GroupID(scope string, n int) string          { return fmt.Sprintf("%s/group/%06d", scope, n) }
func ValidateID(scope string, name string) string { return scope + "/validate/" + name }
func ExportID(scope string, step int) string      { return fmt.Sprintf("%s/export/%06d", scope, step) }

// Messages that a run accepts while it is open, and the internal signals between its workflows.
const (
	UpdatePause  = "pause"           // update and signal: stop before the next update; no argument
	UpdateResume = "resume"          // update and signal: go on; no argument
	UpdateStop   = "stop_after_step" // update and signal: StopRequest

	UpdateRate      = "set_learning_rate" // update and signal: RateRequest
	UpdateThreshold = "set_threshold"     // update and signal: ThresholdRequest
	UpdatePrefill   = "set_prefill"       // update and signal: PrefillRequest

	UpdateRollback = "rollback" // update: RollbackRequest, answered with RollbackResult

	QueryProgress = "progress" // query: Progress

	SignalControl   = "control"    // TrainRun to TrainLoop: Control
	SignalProgress  = "progress"   // TrainLoop to TrainRun: Progress
	SignalGroupDone = "group_done" // RolloutGroup to TrainLoop: GroupDone
)

// Staleness policies, as the configuration spells them.
const (
	PolicyDrop        = "drop"
	PolicyWait        = "wait"
	PolicyCancelEarly = "cancel_early"
)

// MaxMessage is the largest size of a message in bytes, as JSON.
const MaxMessage = 16 << 10

// Search attributes that a server needs for `steady dev`-like lists; a run works without them.
const (
	AttrRunName       = "RunName"       // Keyword
	AttrPhase         = "Phase"         // Keyword
	AttrStep          = "Step"          // Int
	AttrPolicyVersion = "PolicyVersion" // Int
	AttrReward        = "Reward"        // Double
	AttrDevAccuracy   = "DevAccuracy"   // Double
)

// SearchAttribute is one of ours with its type.
type SearchAttribute struct {
	Name string
	Type enumspb.IndexedValueType
}

// SearchAttributes lists what a namespace needs for the workflow lists to be useful.
func SearchAttributes() []SearchAttribute {
	return []SearchAttribute{
		{AttrRunName, enumspb.INDEXED_VALUE_TYPE_KEYWORD},
		{AttrPhase, enumspb.INDEXED_VALUE_TYPE_KEYWORD},
		{AttrStep, enumspb.INDEXED_VALUE_TYPE_INT},
		{AttrPolicyVersion, enumspb.INDEXED_VALUE_TYPE_INT},
		{AttrReward, enumspb.INDEXED_VALUE_TYPE_DOUBLE},
		{AttrDevAccuracy, enumspb.INDEXED_VALUE_TYPE_DOUBLE},
	}
}
