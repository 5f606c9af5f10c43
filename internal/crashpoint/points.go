package crashpoint

import "slices"

// points are all names, in the order in which a run meets them first. The part before the first dot says who visits the point.
var points = []string{
	// StartRun: the record takes the run's name, then the rest follows.
	"control.run.before", "control.run.after", "control.config.after", "control.base.after", "control.baseinfo.after",

	// Data: parts of rows, the finished shard, the data set, the run's record of it.
	"data.part.before", "data.part.after", "data.shard.before", "data.shard.after",
	"data.file.after", "data.manifest.before", "data.manifest.after", "data.rename.before", "data.rename.after",
	"data.work.after", "data.record.before", "data.record.after",

	// The trainer: epoch, first checkpoint, versions, results.
	"trainer.fence.before", "trainer.fence.after",
	"trainer.checkpoint.file", "trainer.checkpoint.meta", "trainer.checkpoint.before", "trainer.checkpoint.after", "trainer.checkpoint.verified",
	"trainer.weights.before", "trainer.weights.after", "trainer.version.after",
	"trainer.live.before", "trainer.live.after",
	"trainer.update.after", "trainer.result.before", "trainer.result.after",
	"trainer.aside.before", "trainer.aside.after",

	// Rollouts, token by token, and verdicts.
	"rollout.token", "rollout.flush.before", "rollout.flush.after", "rollout.sample.before", "rollout.sample.after",
	"rollout.trajectories.before", "rollout.trajectories.after", "rollout.sweep.after",
	"judge.verdicts.before", "judge.verdicts.after",

	// A step: seal, publish, validate, clean up.
	"control.ledger.before", "control.ledger.after", "control.batch.after",
	"control.live.before", "control.live.after",
	"control.validation.before", "control.validation.after",
	"control.retention.weights", "control.retention.checkpoint",

	// What messages of the loop do: events for the time line, and groups that are not wanted any more, which are cancelled.
	"control.event.before", "control.event.after", "rollout.cancel.before", "rollout.cancel.after",

	// A rollback: the new lineage takes its name, files of its parent, and the state of a step.
	"control.lineage.before", "control.lineage.after", "control.lineage.file", "control.lineage.baseinfo",
	"trainer.mend.before", "trainer.mend.after",

	// The end: left-over groups, export, report.
	"control.end.before", "control.end.after",
	"trainer.export.file", "trainer.export.certificate", "trainer.export.before", "trainer.export.after",
	"control.report.before", "control.report.after",

	// Inside the artifact store, whoever uses it.
	"store.temp.made", "store.temp.written", "store.temp.synced",
	"store.put.linked", "store.put.synced", "store.replace.renamed", "store.replace.synced",
	"store.remove.before", "store.remove.renamed", "store.remove.after",
}

// All returns every name, in the order in which a run meets them first.
func All() []string { return slices.Clone(points) }
