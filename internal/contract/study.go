package contract

import (
	"encoding/json"

	"github.com/steadyrl/steady/internal/artifact"
)

// OpenStudyRequest asks for the checked plan of a study. Idempotence: by Study; the same id with another definition is Invalid.
type OpenStudyRequest struct {
	Study string          `json:"study"` // id of the workflow
	Input json.RawMessage `json:"input"` // the study as `steady study show --json` prints it
}

// StudySpec is what the workflow needs of a study.
type StudySpec struct {
	Title    string   `json:"title"`
	Arms     []string `json:"arms"`
	Seeds    []uint64 `json:"seeds"`
	Parallel int      `json:"parallel"`
	// Done are the runs that have a result, by number: that of the seed times the number of arms, plus that of the arm.
	Done []int `json:"done,omitempty"`
}

// StudyRunRequest names an arm with a seed.
type StudyRunRequest struct {
	Study string `json:"study"`
	Arm   string `json:"arm"`
	Seed  uint64 `json:"seed"`
}

// PreparedRun is a run to be started: its id, which no run has had, and the input of TrainRun. Idempotence: until the run has started.
type PreparedRun struct {
	Run   string          `json:"run"`
	Input json.RawMessage `json:"input,omitempty"`
	// Finished says that the run of that name is at its end: there is nothing to start.
	Finished bool `json:"finished,omitempty"`
}

// CollectStudyRunRequest records how a run ended. Idempotence: a recorded result stays; a recorded failure is replaced.
type CollectStudyRunRequest struct {
	StudyRunRequest
	Run     string `json:"run"`
	Kind    string `json:"kind,omitempty"` // fault kind, or "Canceled"; empty if the run ended well
	Failure string `json:"failure,omitempty"`
}

// CollectedRun is what people see of it.
type CollectedRun struct {
	Value   *float64 `json:"value,omitempty"` // of the study's metric, at the end
	Failure string   `json:"failure,omitempty"`
}

// SummarizeStudyRequest asks for what the runs that are recorded say. Idempotence: a function of the records; replaced each time.
type SummarizeStudyRequest struct {
	Study string `json:"study"`
}

// StudyOutput is the end of Study.
type StudyOutput struct {
	Done   int          `json:"done"` // runs with a result
	All    int          `json:"all"`
	Passed *bool        `json:"passed,omitempty"` // nil: no gate
	Page   artifact.Ref `json:"page"`
}

// StudyProgress answers the query of a study.
type StudyProgress struct {
	Phase   string     `json:"phase"`
	All     int        `json:"all"`
	Done    int        `json:"done"`
	Failed  int        `json:"failed"`
	Running []string   `json:"running,omitempty"` // runs
	Rows    []StudyRow `json:"rows,omitempty"`    // runs that this execution has seen the end of, the newest MaxStudyRows
}

// MaxStudyRows bounds StudyProgress.
const MaxStudyRows = 60

// StudyRow is a run that has ended.
type StudyRow struct {
	Run string `json:"run"`
	CollectedRun
}
