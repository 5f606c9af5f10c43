package record

import "fmt"

// StudyLayout gives the store names of a study, which are beside those of its runs.
type StudyLayout struct{ Study string }

// Root is the common prefix of all names, with a final slash.
func (l StudyLayout) Root() string { return l.at("") }

// File is the name of the study's own record (Study).
func (l StudyLayout) File() string { return l.at("study.json") }

// Run is the name of the record (StudyRun) of an arm with a seed.
func (l StudyLayout) Run(arm string, seed uint64) string { return l.at("runs/%s.s%d.json", arm, seed) }

// Result is the name of what the runs say about the arms.
func (l StudyLayout) Result() string { return l.at("result.json") }

// Page is the name of the study's text for people; Picture, Curves and Pairs are its picture and tables.
func (l StudyLayout) Page() string { return l.at("study.md") }

// Picture is the picture, as SVG.
func (l StudyLayout) Picture() string { return l.at("study.svg") }

// Curves is the table of all validations, as CSV.
func (l StudyLayout) Curves() string { return l.at("study.csv") }

// Pairs is the table of all dev problems at the end of all runs, as CSV.
func (l StudyLayout) Pairs() string { return l.at("study-problems.csv") }

func (l StudyLayout) at(format string, args ...any) string {
	return "studies/" + l.Study + "/" + fmt.Sprintf(format, args...)
}

// Study is the record of a study's id. It is written when the study starts first; the same id with another definition is refused.
type Study struct {
	Study      string `json:"study"`
	Definition string `json:"definition"` // as JSON
	Steady     string `json:"steady"`     // version of the binary that began it
	Started    string `json:"started"`    // RFC 3339
}

// StudyRun is what a study keeps of a run. It is written when the run ended with a result and never changes.
type StudyRun struct {
	Arm  string `json:"arm"`
	Seed uint64 `json:"seed"`
	Run  string `json:"run"` // its name
	// Kind and Failure say why there is no result; both are empty if there is one.
	Kind    string `json:"kind,omitempty"`
	Failure string `json:"failure,omitempty"`

	ConfigDigest string       `json:"config_digest,omitempty"`
	StateDigest  string       `json:"state_digest,omitempty"` // of the last step
	Points       []StudyPoint `json:"points,omitempty"`       // validations, by step
	Items        []DevItem    `json:"items,omitempty"`        // of the last validation
	Steps        []StudyStep  `json:"steps,omitempty"`        // by number
}

// StudyPoint is one validation of a run.
type StudyPoint struct {
	Step     int     `json:"step"`
	Problems int     `json:"problems"`
	Solved   int     `json:"solved"`
	Acc      float64 `json:"acc"`
	PassRate float64 `json:"pass_rate"`
	FormatOK float64 `json:"format_ok"`
	Tokens   float64 `json:"mean_response_tokens"`
}

// StudyStep are the numbers of a training step that a study looks at. nil is undefined.
type StudyStep struct {
	Step       int      `json:"step"`
	Reward     *float64 `json:"reward_mean"`
	GradNorm   *float64 `json:"grad_norm"`
	Tokens     *float64 `json:"response_tokens"`
	NoAnswer   *float64 `json:"unjudgeable_share"`
	LagMean    *float64 `json:"lag_mean"`
	LogProbGap *float64 `json:"logprob_gap"`
	Correction *float64 `json:"sc_correction"`
}
