package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/record"
)

func TestChainOfID_isTheInverseOfTheIDs(t *testing.T) {
	t.Parallel()
	for _, k := range []RunKey{{Run: "r1", Lineage: "l0"}, {Run: "l1", Lineage: "l12"}, {Run: "a.b-c_1", Lineage: "l0"}} {
		for id, want := range map[string]Chain{
			k.Run:                              {RunKey: RunKey{Run: k.Run, Lineage: "l0"}},
			DatasetID(k.Run):                   {RunKey: RunKey{Run: k.Run, Lineage: "l0"}},
			LoopID(k.Scope()):                  {RunKey: k},
			GroupID(k.Scope(), 7):              {RunKey: k, Group: new(7)},
			ValidateID(k.Scope(), "000025"):    {RunKey: k, Step: new(25)},
			ValidateID(k.Scope(), "export"):    {RunKey: k},
			ExportID(k.Scope(), 50):            {RunKey: k, Step: new(50)},
			"somebody's/id of another program": {RunKey: RunKey{Run: "somebody's", Lineage: "l0"}},
		} {
			if d := cmp.Diff(want, ChainOfID(id)); d != "" {
				t.Errorf("%s (-want +got):\n%s", id, d)
			}
		}
	}
}

func TestChainOf_unitsTellGroupAndStep(t *testing.T) {
	t.Parallel()
	k := RunKey{Run: "r", Lineage: "l1"}
	unit, chunk := record.GroupUnit(7, 3, 41, 1), record.EvalUnit("000025", 2)
	for _, tt := range []struct {
		request any
		want    Chain
	}{
		{GenerateRequest{RunKey: k, Unit: unit, Group: 7, Tag: 3}, Chain{RunKey: k, Step: new(3), Group: new(7), Unit: unit}},
		{JudgeRequest{RunKey: k, Unit: unit}, Chain{RunKey: k, Step: new(3), Group: new(7), Unit: unit}},
		{GenerateRequest{RunKey: k, Unit: chunk}, Chain{RunKey: k, Step: new(25), Unit: chunk}},
		{JudgeRequest{RunKey: k, Unit: record.EvalUnit("export", 0)}, Chain{RunKey: k, Unit: record.EvalUnit("export", 0)}},
		{JudgeRequest{RunKey: k, Unit: "odd"}, Chain{RunKey: k, Unit: "odd"}},
		{EventRequest{RunKey: k, Event: record.Event{Step: 4}}, Chain{RunKey: k, Step: new(4)}},
		{EventRequest{RunKey: k}, Chain{RunKey: k}},
		{ReportRequest{RunKey: k}, Chain{RunKey: k}},
		{StartRunRequest{Run: "r"}, Chain{RunKey: RunKey{Run: "r", Lineage: "l0"}}},
		{CollectStudyRunRequest{Run: "s-a-1"}, Chain{RunKey: RunKey{Run: "s-a-1", Lineage: "l0"}}},
		{"no request", Chain{}},
	} {
		if d := cmp.Diff(tt.want, ChainOf(tt.request)); d != "" {
			t.Errorf("%T (-want +got):\n%s", tt.request, d)
		}
	}
}

// A request with a step, or for another activity, must not be forgotten in ChainOf: every struct of the package whose name ends in
// Request and that has a field Step, Version or Unit has a case of its own there.
func TestChainOf_knowsEveryRequestWithAStep(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	cases := map[string]bool{}
	chain, err := parser.ParseFile(set, "chain.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(chain, func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok {
			for _, e := range c.List {
				cases[fmt.Sprint(e)] = true
			}
		}
		return true
	})
	messages, err := parser.ParseFile(set, "messages.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(messages, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSpec)
		if !ok || !strings.HasSuffix(s.Name.Name, "Request") {
			return true
		}
		st, ok := s.Type.(*ast.StructType)
		if !ok {
			return true
		}
		embeds, stepped := false, false
		for _, f := range st.Fields.List {
			embeds = embeds || len(f.Names) == 0 && fmt.Sprint(f.Type) == "RunKey"
			for _, name := range f.Names {
				stepped = stepped || name.Name == "Step" || name.Name == "Version" || name.Name == "Unit"
			}
		}
		if embeds && stepped {
			found++
			if !cases[s.Name.Name] {
				t.Errorf("ChainOf has no case for %s", s.Name.Name)
			}
		}
		return true
	})
	if found < 10 {
		t.Errorf("only %d requests with a step were found", found)
	}
}
