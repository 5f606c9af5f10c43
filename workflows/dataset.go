package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// PrepareDataset filters the shards side by side, then deduplicates, splits and writes the data set. Data that was
// prepared before from the same inputs by the same rules is used as it is. It continues nothing and
// accepts no messages; cancel ends its activities, and finished shards are kept.
func PrepareDataset(ctx workflow.Context, spec contract.RunSpec) (contract.DatasetResult, error) {
	t := spec.Timeouts
	data := func(summary string) workflow.Context {
		return class(ctx, contract.QueueData, t.Shard, t, summary)
	}
	plan, err := contract.PlanDatasetActivity.Do(data("look at the shards"), contract.PlanDatasetRequest{RunKey: spec.RunKey})
	if err != nil {
		return contract.DatasetResult{}, err
	}
	if !plan.Ready {
		var shards []workflow.Future
		for i, name := range plan.Shards {
			shards = append(shards, contract.PrepareShardActivity.Start(data(fmt.Sprintf("filter and check %s", name)),
				contract.PrepareShardRequest{RunKey: spec.RunKey, Key: plan.Key, Shard: i}))
		}
		for _, f := range shards {
			if err := f.Get(ctx, nil); err != nil {
				return contract.DatasetResult{}, err
			}
		}
	}
	return contract.FinishDatasetActivity.Do(data("deduplicate, split, write"),
		contract.FinishDatasetRequest{RunKey: spec.RunKey, Key: plan.Key, Shards: len(plan.Shards)})
}
