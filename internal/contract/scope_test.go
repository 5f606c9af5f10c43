package contract_test

import (
	"testing"

	"github.com/steadyrl/steady/internal/contract"
)

// Ids of the first lineage are those that runs had before there were others; ids of two lineages never clash.
func TestScope_isOneToOne(t *testing.T) {
	t.Parallel()
	seen := map[string]contract.RunKey{}
	for _, run := range []string{"r", "r-l1", "r.l1", "l1", "l0"} {
		for _, lineage := range []string{"l0", "l1", "l2", "l10"} {
			k := contract.RunKey{Run: run, Lineage: lineage}
			for _, id := range []string{contract.LoopID(k.Scope()), contract.GroupID(k.Scope(), 1), contract.ValidateID(k.Scope(), "export"), contract.ExportID(k.Scope(), 1)} {
				if other, ok := seen[id]; ok {
					t.Errorf("%+v and %+v both have %s", k, other, id)
				}
				seen[id] = k
			}
			if got := contract.ParseScope(k.Scope()); got != k {
				t.Errorf("the scope %q of %+v is parsed as %+v", k.Scope(), k, got)
			}
		}
	}
	if got := contract.LoopID(contract.RunKey{Run: "r", Lineage: "l0"}.Scope()); got != "r/train" {
		t.Errorf("the loop of the first lineage is %s", got)
	}
	if got := (contract.RunKey{Run: "r"}).Scope(); got != "r" {
		t.Errorf("a message of an older build has scope %s", got)
	}
}
