package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
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

// requests are all that name a run; the test below compares the list with the source.
func requests() []any {
	return []any{
		&StartRunRequest{Run: "r"}, &OpenLineageRequest{}, &SealBatchRequest{}, &CloseLedgerRequest{}, &PublishRequest{}, &SummarizeRequest{}, &InspectRequest{},
		&EventRequest{}, &RetentionRequest{}, &ReportRequest{}, &PlanDatasetRequest{}, &PrepareShardRequest{}, &FinishDatasetRequest{}, &GenerateRequest{}, &JudgeRequest{},
		&InitPolicyRequest{}, &AcquireRequest{}, &UpdateRequest{}, &CheckpointRequest{}, &ExportRequest{},
	}
}

// No request is forgotten in ChainOf: each gives its run and lineage, and its step if it has a field for it.
func TestChainOf_knowsEveryRequest(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, p := range requests() {
		v := reflect.ValueOf(p).Elem()
		listed[v.Type().Name()] = true
		if f := v.FieldByName("RunKey"); f.IsValid() {
			f.Set(reflect.ValueOf(RunKey{Run: "r", Lineage: "l0"}))
		}
		stepped := false
		for _, name := range []string{"Step", "Version"} {
			if f := v.FieldByName(name); f.IsValid() {
				f.SetInt(6)
				stepped = true
			}
		}
		c := ChainOf(v.Interface())
		if c.RunKey != (RunKey{Run: "r", Lineage: "l0"}) || stepped != (c.Step != nil && *c.Step == 6) {
			t.Errorf("%s: chain %+v, with a step: %v", v.Type().Name(), c, stepped)
		}
	}
	messages, err := parser.ParseFile(token.NewFileSet(), "messages.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(messages, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSpec)
		if !ok || !strings.HasSuffix(s.Name.Name, "Request") {
			return true
		}
		if st, ok := s.Type.(*ast.StructType); ok && !listed[s.Name.Name] {
			for _, f := range st.Fields.List {
				if len(f.Names) == 0 && fmt.Sprint(f.Type) == "RunKey" {
					t.Errorf("%s is not in the list of requests", s.Name.Name)
				}
			}
		}
		return true
	})
}
