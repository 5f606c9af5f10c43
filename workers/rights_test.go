package workers

import (
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// What a judge leaves in the store is allowed, every other name of the layout is not.
func TestRestrict_leavesAJudgeItsResults(t *testing.T) {
	t.Parallel()
	l := record.Layout{Run: "r", Lineage: "l1"}
	names := map[string]bool{
		l.Verdicts(record.GroupUnit(1, 2, 3, 4)): true, l.Verdicts(record.EvalUnit("000010", 0)): true, l.Event("e1"): true, l.Worker("judge-1"): true,
		l.RunFile(): false, l.LineageFile(): false, l.ConfigFile(): false, l.Dataset(): false, l.Sample("groups/1", 1, 1): false, l.Partial("groups/1", 1, 1): false,
		l.Trajectories("groups/1"): false, l.Batch(1): false, l.Result(1): false, l.Ledger(1): false, l.LedgerEnd(): false, l.Weights(1): false, l.WeightsInfo(1): false,
		l.Live(): false, l.Fence(): false, l.Checkpoint(1): false, l.Checkpoint(1) + "/meta.json": false, l.Validation("1"): false, l.Export(): false, l.Base() + "/config.json": false,
		l.Report(): false, "datasets/x/manifest.json": false, "runs/verdicts.json": false, "runs/r/l0/verdicts.json": false, "verdicts.json": false, "runs/r/l0/events": false,
	}
	files, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, may := range names {
		for _, roles := range [][]Role{{RoleJudge}, {RoleJudge, RoleData}, {RoleControl}} {
			o := Options{Store: files, Roles: roles}
			restrict(&o)
			_, err := o.Store.Replace(t.Context(), name, []byte("x"))
			if refused := len(roles) == 1 && roles[0] == RoleJudge && !may; fault.Is(err, fault.Internal) != refused {
				t.Errorf("roles %v write %s: %v, want refused %v", roles, name, err, refused)
			}
			if err := files.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
}
