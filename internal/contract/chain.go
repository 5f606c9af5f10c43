package contract

import (
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/record"
)

// Chain names the work that a log line or a span is of. Everything that tells of work tells it by the same words: run, lineage, step,
// group, attempt, worker, role; the last three are of the process and come from elsewhere.
type Chain struct {
	RunKey
	// Step is the step or the version that the work is for; for a group its tag, the step in progress when it was submitted.
	Step *int
	// Group is the number of a group, nil for other work.
	Group *int
	// Unit is the group's or the dev chunk's name in the store, empty for other work.
	Unit string
}

// ChainOf returns the chain of a request. A request of none of this package's types has an empty one.
func ChainOf(request any) Chain {
	step := func(k RunKey, n int) Chain { return Chain{RunKey: k, Step: &n} }
	switch q := request.(type) {
	case StartRunRequest:
		return Chain{RunKey: RunKey{Run: q.Run, Lineage: record.FirstLineage}}
	case CollectStudyRunRequest:
		return Chain{RunKey: RunKey{Run: q.Run, Lineage: record.FirstLineage}}
	case PrepareShardRequest: // this and the next have a field Key, which hides the method
		return Chain{RunKey: q.RunKey}
	case FinishDatasetRequest:
		return Chain{RunKey: q.RunKey}
	case GenerateRequest:
		c := chainOfUnit(q.RunKey, q.Unit)
		if c.Group != nil {
			c.Step = &q.Tag
		}
		return c
	case JudgeRequest:
		return chainOfUnit(q.RunKey, q.Unit)
	case SealBatchRequest:
		return step(q.RunKey, q.Step)
	case PublishRequest:
		return step(q.RunKey, q.Version)
	case SummarizeRequest:
		return step(q.RunKey, q.Version)
	case RetentionRequest:
		return step(q.RunKey, q.Step)
	case OpenLineageRequest:
		return step(q.RunKey, q.Step)
	case InitPolicyRequest:
		return step(q.RunKey, q.Step)
	case UpdateRequest:
		return step(q.RunKey, q.Step)
	case CheckpointRequest:
		return step(q.RunKey, q.Step)
	case ExportRequest:
		return step(q.RunKey, q.Step)
	case EventRequest:
		if q.Event.Step > 0 {
			return step(q.RunKey, q.Event.Step)
		}
		return Chain{RunKey: q.RunKey}
	case interface{ Key() RunKey }:
		return Chain{RunKey: q.Key()}
	}
	return Chain{}
}

// chainOfUnit reads the inverse of record.GroupUnit and record.EvalUnit.
func chainOfUnit(k RunKey, unit string) Chain {
	c := Chain{RunKey: k, Unit: unit}
	kind, rest, _ := strings.Cut(unit, "/")
	switch kind {
	case "groups":
		parts := strings.Split(rest, "-")
		c.Group = number(parts[0])
		if len(parts) > 1 {
			c.Step = number(strings.TrimPrefix(parts[1], "t"))
		}
	case "validation":
		name, _, _ := strings.Cut(rest, "/")
		c.Step = number(name)
	}
	return c
}

// ChainOfID returns the chain of a workflow id, as far as the id tells it.
func ChainOfID(id string) Chain {
	parts := strings.Split(id, "/")
	c := Chain{RunKey: RunKey{Run: parts[0], Lineage: record.FirstLineage}}
	rest := parts[1:]
	if len(rest) > 1 && strings.HasPrefix(rest[0], "l") && number(rest[0][1:]) != nil {
		c.Lineage, rest = rest[0], rest[1:]
	}
	if len(rest) < 2 {
		return c
	}
	switch rest[0] {
	case "group":
		c.Group = number(rest[1])
	case "validate", "export":
		c.Step = number(rest[1])
	}
	return c
}

// number reads a decimal number, nil for anything else.
func number(s string) *int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// Roles of processes, by the queues that they serve.
const (
	RoleControl = "control"
	RoleData    = "data"
	RoleRollout = "rollout"
	RoleJudge   = "judge"
	RoleTrainer = "trainer"
	RoleStandby = "standby"
)

// RoleOf names the role that serves a task queue; the queue itself for one of another program.
func RoleOf(queue string) string {
	kind, _, _ := strings.Cut(queue, "/")
	switch kind {
	case QueueControl:
		return RoleControl
	case QueueData:
		return RoleData
	case QueueRollout:
		return RoleRollout
	case QueueJudge:
		return RoleJudge
	case QueueTrainer:
		return RoleTrainer
	case QueueStandby:
		return RoleStandby
	}
	return queue
}
