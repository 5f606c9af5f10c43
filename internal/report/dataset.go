package report

import (
	"maps"
	"slices"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/record"
)

// reasonDocs says what a rule of the filter looks for.
var reasonDocs = map[dataset.Reason]string{
	dataset.CellTooLarge:        "a cell of the row is too large",
	dataset.BadStatement:        "the statement is empty or not text",
	dataset.CallBased:           "a function to be called, not standard input and output",
	dataset.BadTests:            "the tests are missing or malformed",
	dataset.UnequalTests:        "not as many outputs as inputs",
	dataset.NoTests:             "too few tests",
	dataset.Image:               "the task needs a picture",
	dataset.SpecialJudge:        "more than one output is probably right",
	dataset.BadSolutions:        "the reference solutions are malformed",
	dataset.NoSolution:          "there is no reference solution",
	dataset.SolutionShown:       "the statement holds a reference solution",
	dataset.PromptTooLong:       "the prompt is too long",
	dataset.ReferenceFailed:     "no reference solution passes all tests in the sandboxed judge",
	dataset.ReferencesDisagree:  "reference solutions contradict each other",
	dataset.Excluded:            "in the list of excluded problems",
	dataset.DuplicateText:       "the same text as an earlier problem",
	dataset.DuplicateURL:        "the same address as an earlier problem",
	dataset.DuplicatePlatformID: "the same platform identity as an earlier problem",
	dataset.NotSelected:         "good, but the splits are full",
}

// dataset reads the manifest of the prepared data.
func (ld *loader) dataset() error {
	var where record.Dataset
	if _, _, err := ld.get(ld.l.Dataset(), &where); err != nil {
		return err
	}
	var m dataset.Manifest
	if _, _, err := ld.get(where.Dir+"/"+dataset.ManifestFile, &m); err != nil {
		return err
	}
	d := &Dataset{Dir: where.Dir, Rows: m.Rows, Kept: m.Train + m.Dev, Train: m.Train, Dev: m.Dev}
	for _, r := range m.Reasons {
		reason := dataset.Reason(r.Name)
		if reason == dataset.Kept {
			continue
		}
		if r.Rows == 0 {
			d.Idle = append(d.Idle, r.Name)
			continue
		}
		d.Dropped = append(d.Dropped, Count{Name: r.Name, Doc: reasonDocs[reason], N: r.Rows})
	}
	for _, in := range m.Inputs {
		d.Inputs = append(d.Inputs, in.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Settings)) {
		d.Settings = append(d.Settings, k+": "+m.Settings[k])
	}
	ld.d.Dataset = d
	return nil
}
