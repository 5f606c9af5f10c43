package record

import (
	"fmt"
	"strings"
)

// Layout gives the store names of one lineage of a run. Steps and versions are decimal, six digits.
type Layout struct{ Run, Lineage string }

// RunFile is the name of the run's own record (Run), above its lineages.
func (l Layout) RunFile() string { return "runs/" + l.Run + "/run.json" }

// FirstLineage is the one that every run begins with. A rollback opens the next: l1, l2 and so on.
const FirstLineage = "l0"

// LineageFile is the name of the record (Run) of the lineage: the run's own for the first, else one of the lineage.
func (l Layout) LineageFile() string {
	if l.Lineage == FirstLineage || l.Lineage == "" {
		return l.RunFile()
	}
	return l.at("run.json")
}

// ConfigFile is the name of the effective configuration of the lineage.
func (l Layout) ConfigFile() string { return l.at("config.json") }

// Dataset is the record (Dataset) of the prepared data that the lineage uses.
func (l Layout) Dataset() string { return l.at("dataset.json") }

// Root is the common prefix of all other names, with a final slash.
func (l Layout) Root() string { return l.at("") }

// Sample is a finished trajectory; Partial is the newest flush of an unfinished one.
func (l Layout) Sample(unit string, problem, sample int) string {
	return l.at("%s/sample-%04d-%02d.parquet", unit, problem, sample)
}

// Partial is the newest flush of an unfinished trajectory; it is replaced, and removed at the end.
func (l Layout) Partial(unit string, problem, sample int) string {
	return l.at("%s/partial-%04d-%02d.parquet", unit, problem, sample)
}

// Trajectories is the file of all finished trajectories of a unit, in order.
func (l Layout) Trajectories(unit string) string { return l.at("%s/trajectories.parquet", unit) }

// Verdicts is the judge's record of a unit.
func (l Layout) Verdicts(unit string) string { return l.at("%s/verdicts.json", unit) }

// GroupUnit is the unit of a training group: its number, tag, problem and submission count.
func GroupUnit(n, tag, problem, submission int) string {
	return fmt.Sprintf("groups/%06d-t%d-p%d-s%d", n, tag, problem, submission)
}

// EvalUnit is the unit of chunk c of the named validation ("000025" or "export").
func EvalUnit(name string, c int) string { return fmt.Sprintf("validation/%s/chunk-%03d", name, c) }

// Batch is the sealed batch of a step.
func (l Layout) Batch(step int) string { return l.at("batches/%06d.json", step) }

// Result is the result of a step.
func (l Layout) Result(step int) string { return l.at("results/%06d.json", step) }

// Computed says how the update of a step was computed (Computed), before anything that came of it is written. There is none where the sealed
// batch says it all.
func (l Layout) Computed(step int) string { return l.at("computed/%06d.json", step) }

// Choices are those of a trainer (engine.Chooser), by their digest.
func (l Layout) Choices(digest string) string { return l.at("choices/%s", digest) }

// Ledger is the ledger record of a step.
func (l Layout) Ledger(step int) string { return l.at("ledger/%06d.json", step) }

// LedgerEnd is the ledger record of what was left when the loop ended.
func (l Layout) LedgerEnd() string { return l.at("ledger/end.json") }

// Weights is the safetensors file of a published version; WeightsInfo its manifest.
func (l Layout) Weights(version int) string { return l.at("weights/%06d.safetensors", version) }

// WeightsInfo is the manifest (Version) of a published version.
func (l Layout) WeightsInfo(version int) string { return l.at("weights/%06d.json", version) }

// Live is the pointer to the version that engines serve.
func (l Layout) Live() string { return l.at("live.json") }

// Fence is the pointer to the trainer epoch that may write.
func (l Layout) Fence() string { return l.at("fence.json") }

// Checkpoint is the directory of a checkpoint.
func (l Layout) Checkpoint(step int) string { return l.at("checkpoints/%06d", step) }

// Checkpoints is the directory of all checkpoints.
func (l Layout) Checkpoints() string { return l.at("checkpoints") }

// Validation is the record of a validation ("000025" or "export").
func (l Layout) Validation(name string) string { return l.at("validation/%s.json", name) }

// Event is the record of a failure or recovery; id must be unique and sort by time.
func (l Layout) Event(id string) string { return l.at("events/%s.json", id) }

// Events is the prefix of all events.
func (l Layout) Events() string { return l.at("events/") }

// Worker is the record of a process that served the lineage. Characters of the host's name that file names should not have
// become '_'.
func (l Layout) Worker(host string) string {
	return l.at("workers/%s.json", strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, host))
}

// Workers is the prefix of all records of processes.
func (l Layout) Workers() string { return l.at("workers/") }

// Export is the directory of the exported model.
func (l Layout) Export() string { return l.at("export") }

// Base is the directory of the initial model's small files: configuration, tokenizer, templates.
func (l Layout) Base() string { return l.at("base") }

// BaseInfo is the record (Base) of the files under Base.
func (l Layout) BaseInfo() string { return l.at("base.json") }

// Report is the HTML report.
func (l Layout) Report() string { return l.at("report.html") }

// StepName is the six-digit form of a step, as used in names.
func StepName(step int) string { return fmt.Sprintf("%06d", step) }

func (l Layout) at(format string, args ...any) string {
	return "runs/" + l.Run + "/" + l.Lineage + "/" + fmt.Sprintf(format, args...)
}
