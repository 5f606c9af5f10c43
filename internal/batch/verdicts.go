package batch

import (
	"context"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Verdicts is the judge's record of a unit, one item a trajectory in the order of the file.
type Verdicts struct {
	Unit   string       `json:"unit"`
	File   artifact.Ref `json:"file"`   // the trajectories that were judged
	Python string       `json:"python"` // version of the interpreter
	Items  []Verdict    `json:"items"`
}

// Verdict is the outcome of one trajectory.
type Verdict struct {
	ProblemID string  `json:"problem_id"`
	Sample    int     `json:"sample"`
	Reward    float64 `json:"reward"` // passed / total, 0 where nothing can be judged
	// Shared is true if another trajectory of the unit submitted the same program and its runs were taken.
	Shared bool `json:"shared,omitempty"`
	judge.Verdict
}

// Unit is a unit read back.
type Unit struct {
	Verdicts     Verdicts
	Ref          artifact.Ref // of the verdicts
	Trajectories []*trajectory.Trajectory
}

// LoadUnit reads the verdicts of a unit and the trajectories they refer to, verified. Errors: NotFound, Corrupt.
func LoadUnit(ctx context.Context, s artifact.Store, l record.Layout, name string) (Unit, error) {
	return ReadUnit(ctx, s, l.Verdicts(name))
}

// ReadUnit is LoadUnit for the verdicts in a file of any name.
func ReadUnit(ctx context.Context, s artifact.Store, name string) (Unit, error) {
	var u Unit
	var err error
	if u.Ref, err = artifact.GetJSON(ctx, s, name, &u.Verdicts); err != nil {
		return Unit{}, err
	}
	if u.Trajectories, err = ReadTrajectories(ctx, s, u.Verdicts.File); err != nil {
		return Unit{}, err
	}
	if len(u.Trajectories) != len(u.Verdicts.Items) {
		return Unit{}, fault.New(fault.Corrupt, "batch.LoadUnit", "unit %s has %d trajectories and %d verdicts", name, len(u.Trajectories), len(u.Verdicts.Items))
	}
	for i, t := range u.Trajectories {
		if v := u.Verdicts.Items[i]; v.ProblemID != t.ProblemID || v.Sample != t.Sample {
			return Unit{}, fault.New(fault.Corrupt, "batch.LoadUnit", "unit %s: verdict %d is of %s sample %d, the trajectory of %s sample %d",
				name, i, v.ProblemID, v.Sample, t.ProblemID, t.Sample)
		}
	}
	return u, nil
}

// ReadTrajectories reads and verifies a file of trajectories. Errors: NotFound, Corrupt.
func ReadTrajectories(ctx context.Context, s artifact.Store, ref artifact.Ref) ([]*trajectory.Trajectory, error) {
	data, err := artifact.Fetch(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	return trajectory.Decode(data)
}
