package report

import (
	"fmt"

	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// Data is everything that the page shows, read from the store. Nil and empty parts are missing.
type Data struct {
	Layout   record.Layout
	Run      *record.Run
	Lineages []string // of the run, oldest first, with where they began
	Config   []byte   // effective configuration, indented JSON
	Plan     Plan
	Base     string // digest of the BF16 weights that the lineage began with

	Steps       []Step              // ordered, each with a batch or a result
	Validations []record.Validation // by step; the export's repeat last
	Events      []record.Event      // by time
	Workers     []record.Worker     // by host
	Ledger      *ledger.Ledger
	Dataset     *Dataset
	Export      *Export
	Samples     []Sample

	// Missing says for every part that is absent what it is and why.
	Missing []Missing
	// Places are the paths for Summary; the page itself names objects by their place in the store.
	Places []Place
}

// Plan is what the page needs to know of the configuration. Zero values are unknown.
type Plan struct {
	Mode      string // async or sync
	Steps     int    // last step
	GroupSize int    // trajectories of a group
}

// Step joins what a step left. Values are nil where a record is missing.
type Step struct {
	Step    int
	Batch   *record.BatchMetrics
	Update  *record.UpdateMetrics
	Groups  int // in the batch
	Samples int // trajectories in the batch
	// WeightsDigest and StateDigest are of the result, empty without one.
	WeightsDigest, StateDigest string
	Trainer                    string
	Replayed                   int
	// Damaged says in a few words what is wrong with the step's result, which is then not used; empty: nothing, or there is none.
	Damaged string
}

// Dataset is the funnel of the prepared data, in problems.
type Dataset struct {
	Dir      string // in the store
	Rows     int    // read
	Kept     int
	Train    int
	Dev      int
	Dropped  []Count  // in the order of the filter, without zeros
	Idle     []string // rules that dropped nothing
	Inputs   []string
	Settings []string // what else decided, each "name: value"
}

// Count is a number of something.
type Count struct {
	Name string
	Doc  string // a few words, may be empty
	N    int
}

// Export is what the certificate says.
type Export struct {
	// Verified says that the certificate's seal holds and every check in it passed. The files themselves are
	// verified by `steady verify-export`.
	Verified   bool
	Step       int
	Digest     string // of all weights, as the published version
	Tensors    int
	Parameters int64
	Bytes      int64 // of all tensors
	Checks     []Check
}

// Check is one check of the export.
type Check struct {
	Name   string
	Passed bool
	Detail string
}

// Sample is a trajectory to look at.
type Sample struct {
	Title   string // what it is an example of
	Where   string // step, group and sample
	Problem string
	Reward  float64
	// Advantage is nil for a trajectory that was not trained on.
	Advantage     *float64
	Passed, Total int
	Kind          string  // the judge's word for the whole
	Tests         []Count // outcomes of the tests
	Tokens        int     // whole sequence
	Sampled       int     // of these, sampled by the model
	MinVersion    int
	MaxVersion    int
	Prompt        string
	Turns         []Turn
}

// Turn is a piece of a response.
type Turn struct {
	Model bool // the model's own text; else an observation
	Text  string
}

// Missing is a part that is not there.
type Missing struct{ Part, Why string }

// Place says where something is.
type Place struct{ What, Path string }

// Published lists the validations of published versions, ordered by version.
func (d *Data) Published() []record.Validation {
	var out []record.Validation
	for _, v := range d.Validations {
		if v.Source != sourceExport {
			out = append(out, v)
		}
	}
	return out
}

// sourceExport marks the validation of the exported files.
const sourceExport = "export"

// repeat returns the validation of the exported files, and that of the checkpoint it repeats (nil without one).
func (d *Data) repeat() (export, checkpoint *record.Validation) {
	for i, v := range d.Validations {
		if v.Source == sourceExport {
			export = &d.Validations[i]
		}
	}
	if export == nil {
		return nil, nil
	}
	for i, v := range d.Validations {
		if v.Source != sourceExport && v.Version == export.Version {
			checkpoint = &d.Validations[i]
		}
	}
	return export, checkpoint
}

// trained counts the trajectories of steps that have a result.
func (d *Data) trained() int {
	n := 0
	for _, s := range d.Steps {
		if s.Update != nil {
			n += s.Samples
		}
	}
	return n
}

// lastResult returns the newest step with a result that can be used, nil without one. behind says if it is not the newest.
func (d *Data) lastResult() *Step {
	for i := len(d.Steps) - 1; i >= 0; i-- {
		if d.Steps[i].Update != nil {
			return &d.Steps[i]
		}
	}
	return nil
}

// reached returns the newest step with a result, whether it can be used or not; 0 without one.
func (d *Data) reached() int {
	if s := d.newest(); s != nil {
		return s.Step
	}
	return 0
}

func (d *Data) newest() *Step {
	for i := len(d.Steps) - 1; i >= 0; i-- {
		if s := &d.Steps[i]; s.Update != nil || s.Damaged != "" {
			return s
		}
	}
	return nil
}

// behind says that lastResult is not of the step that the run reached, and why; else it is empty.
func (d *Data) behind() string {
	if s := d.newest(); s != nil && s.Update == nil {
		return fmt.Sprintf("the newest result, of step %s, %s", integer(s.Step), s.Damaged)
	}
	return ""
}

// recoveries are the kinds of events that tell of something overcome, and commands are those that tell what a person asked for; all others
// are failures.
var (
	recoveries = map[string]bool{"recovered": true, "restored": true, "replayed": true, "rebuilt": true, "reacquired": true}
	commands   = map[string]bool{"setting": true, "rolled_back": true}
)

// faults counts failures and recoveries.
func (d *Data) faults() (failures, recovered int) {
	for _, e := range d.Events {
		switch {
		case recoveries[e.Kind]:
			recovered++
		case !commands[e.Kind]:
			failures++
		}
	}
	return failures, recovered
}
