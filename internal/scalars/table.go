package scalars

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// Type is the type of a column's cells.
type Type string

// Types of columns.
const (
	Text    Type = "text"
	Integer Type = "integer"
	Number  Type = "number"
)

// Column is a column of every table.
type Column struct {
	Name string
	Type Type
	Doc  string
	// Tag is the name of the curve in TensorBoard, empty for a column that is none.
	Tag string
}

// Cell is nil (absent), a string, an int64 or a float64, as the column's type says.
type Cell any

// Row is a step.
type Row struct {
	Step  int
	Cells []Cell // in the order of Columns
	// Seconds is the time from the start of the run to the end of the step, as far as the records tell it: what the steps so
	// far waited for their batches and updated. It is no clock.
	Seconds float64
}

// Table is all rows of a run, by step.
type Table struct {
	Run, Lineage string
	Started      time.Time // of the run; zero if its record does not say
	Rows         []Row
}

// devColumns are the numbers of a validation.
var devColumns = []struct {
	name string
	kind Type
	doc  string
	of   func(record.Validation) Cell
}{
	{"problems", Integer, "problems of the dev set", func(v record.Validation) Cell { return int64(v.Problems) }},
	{"solved", Integer, "problems that passed every test", func(v record.Validation) Cell { return int64(v.Metrics.Solved) }},
	{"acc", Number, "share of problems that passed every test", func(v record.Validation) Cell { return v.Metrics.Acc }},
	{"pass_rate", Number, "mean share of passed tests", func(v record.Validation) Cell { return v.Metrics.PassRate }},
	{"format_ok", Number, "share of problems whose answer held code to judge", func(v record.Validation) Cell { return v.Metrics.FormatOK }},
	{"tool_used", Integer, "problems in which a tool process started", func(v record.Validation) Cell { return int64(v.Metrics.ToolUsed) }},
	{"runtime_errors", Integer, "problems with a run-time error", func(v record.Validation) Cell { return int64(v.Metrics.RuntimeErrors) }},
	{"time_limits", Integer, "problems with a test over the time limit", func(v record.Validation) Cell { return int64(v.Metrics.TimeLimits) }},
	{"runtime_error_tests", Integer, "tests with a run-time error", func(v record.Validation) Cell { return int64(v.Metrics.RuntimeTests) }},
	{"time_limit_tests", Integer, "tests over the time limit", func(v record.Validation) Cell { return int64(v.Metrics.TimeTests) }},
	{"budget_exhausted", Integer, "problems whose judge ran out of its budget", func(v record.Validation) Cell { return int64(v.Metrics.BudgetExhausted) }},
	{"length_cut", Integer, "problems whose response was cut at the length limit", func(v record.Validation) Cell { return int64(v.Metrics.LengthCut) }},
	{"mean_response_tokens", Number, "mean length of a response, tokens", func(v record.Validation) Cell { return v.Metrics.MeanTokens }},
	{"seconds", Number, "time of the validation, seconds", func(v record.Validation) Cell { return v.Seconds }},
}

// Sources of validations and the prefixes of their columns.
const (
	dev      = "dev"
	exported = "export"
)

// Columns lists the columns of every table, in order.
func Columns() []Column {
	out := []Column{
		{"run", Text, "name of the run", ""},
		{"lineage", Text, "lineage that made the step: after a rollback the steps before it are of an older one", ""},
		{"step", Integer, "number of the step; 0 has a validation only", ""},
		{"groups", Integer, "groups in the batch", "batch/groups"},
		{"trajectories", Integer, "trajectories in the batch", "batch/trajectories"},
	}
	for _, m := range record.Metrics(record.BatchMetrics{}) {
		out = append(out, Column{m.Name, Number, m.Doc, "batch/" + m.Name})
	}
	for _, m := range record.Metrics(record.UpdateMetrics{}) {
		out = append(out, Column{m.Name, Number, m.Doc, "update/" + m.Name})
	}
	out = append(out,
		Column{"replayed_steps", Integer, "sealed batches that were trained again right before the update", "update/replayed_steps"},
		Column{"trainer", Text, "host that trained the step", ""},
		Column{"weights_digest", Text, "digest of the published BF16 weights", ""},
		Column{"state_digest", Text, "digest of the FP32 weights, both moments and the step counter", ""})
	for _, prefix := range []string{dev, exported} {
		what := "validation of the published weights: "
		if prefix == exported {
			what = "validation of the export: "
		}
		for _, d := range devColumns {
			out = append(out, Column{prefix + "_" + d.name, d.kind, what + d.doc, prefix + "/" + d.name})
		}
	}
	return out
}

// at returns the place of a column.
func at(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
}

// Load reads the steps of a lineage, and of the lineages of the same run that it goes back to as far as it goes back to them.
//
// Errors: NotFound (no such run), Corrupt (a record is damaged, was changed, or does not belong to the others), and those of the store. A run without a step gives a table without rows.
func Load(ctx context.Context, s artifact.Store, l record.Layout) (*Table, error) {
	t := &Table{Run: l.Run, Lineage: l.Lineage}
	steps := map[int]*step{}
	most := -1 // steps of later ones do not count; -1: all do
	for {
		var r record.Run
		if _, err := artifact.GetJSON(ctx, s, l.LineageFile(), &r); err != nil {
			return nil, err
		}
		if err := read(ctx, s, l, most, steps); err != nil {
			return nil, err
		}
		if r.Parent == nil || r.Parent.Run != l.Run {
			t.Started, _ = time.Parse(time.RFC3339, r.Started) // zero for a text that is no time
			break
		}
		most, l = r.Parent.Step, record.Layout{Run: l.Run, Lineage: r.Parent.Lineage}
	}
	t.fill(steps)
	return t, nil
}

// step is what the records say of a step.
type step struct {
	lineage string
	sealed  *record.Sealed
	result  *record.Result
	dev     map[string]record.Validation // by source
}

// read adds the steps of a lineage up to most that are not there yet.
func read(ctx context.Context, s artifact.Store, l record.Layout, most int, steps map[int]*step) error {
	own := func(n int) *step {
		if most >= 0 && n > most {
			return nil
		}
		x := steps[n]
		if x == nil {
			x = &step{lineage: l.Lineage, dev: map[string]record.Validation{}}
			steps[n] = x
		}
		// A lineage that a rollback opened has its first step from the one before, which may have its validation.
		if x.lineage != l.Lineage && (x.sealed != nil || x.result != nil) {
			return nil
		}
		return x
	}
	var trail record.Trail
	err := each(ctx, s, l.Root()+"batches/", func(n int, v record.Sealed, ref artifact.Ref, _ string) error {
		trail.Batch(n, ref)
		if x := own(n); x != nil {
			v.Plan.MicroBatches = nil
			x.sealed, x.lineage = &v, l.Lineage
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = each(ctx, s, l.Root()+"results/", func(n int, v record.Result, ref artifact.Ref, seal string) error {
		if err := trail.Result(ref.Name, n, v, seal); err != nil {
			return err
		}
		if x := own(n); x != nil {
			x.result, x.lineage = &v, l.Lineage
		}
		return nil
	})
	if err != nil {
		return err
	}
	names, err := s.List(ctx, l.Root()+"validation/")
	if err != nil {
		return err
	}
	for _, name := range names {
		if path.Dir(name)+"/" != l.Root()+"validation/" || !strings.HasSuffix(name, ".json") {
			continue // the units of a validation
		}
		var v record.Validation
		if _, err := artifact.GetJSON(ctx, s, name, &v); err != nil {
			return err
		}
		source := dev
		if v.Source == exported {
			source = exported
		}
		x := own(v.Version)
		if x == nil {
			continue
		}
		if _, have := x.dev[source]; !have {
			x.dev[source] = v
		}
	}
	return nil
}

// each reads every DIR/NNNNNN.json.
func each[T any](ctx context.Context, s artifact.Store, dir string, use func(n int, v T, ref artifact.Ref, seal string) error) error {
	names, err := s.List(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		n, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".json"))
		if err != nil || !strings.HasSuffix(name, ".json") {
			continue
		}
		var v T
		ref, seal, err := artifact.GetSealed(ctx, s, name, &v)
		if fault.Is(err, fault.NotFound) {
			continue // removed in the meantime
		} else if err != nil {
			return err
		}
		if err := use(n, v, ref, seal); err != nil {
			return err
		}
	}
	return nil
}

// fill makes the rows.
func (t *Table) fill(steps map[int]*step) {
	columns := Columns()
	var order []int
	for n := range steps {
		order = append(order, n)
	}
	slices.Sort(order)
	passed := 0.0
	for _, n := range order {
		x := steps[n]
		r := Row{Step: n, Cells: make([]Cell, len(columns))}
		set := func(name string, v Cell) { r.Cells[at(columns, name)] = v }
		number := func(list []record.Metric) {
			for _, m := range list {
				if m.Value != nil {
					set(m.Name, *m.Value)
				}
			}
		}
		set("run", t.Run)
		set("lineage", x.lineage)
		set("step", int64(n))
		if b := x.sealed; b != nil {
			set("groups", int64(len(b.Groups)))
			set("trajectories", int64(len(b.Samples)))
			number(record.Metrics(b.Rollout))
			passed += value(b.Rollout.WaitSeconds)
		}
		if u := x.result; u != nil {
			number(record.Metrics(u.Metrics))
			set("replayed_steps", int64(u.Replayed))
			set("trainer", u.Trainer)
			set("weights_digest", u.WeightsDigest)
			set("state_digest", u.StateDigest)
			passed += value(u.Metrics.Seconds)
		}
		for source, v := range x.dev {
			for _, d := range devColumns {
				set(source+"_"+d.name, d.of(v))
			}
		}
		r.Seconds = passed
		t.Rows = append(t.Rows, r)
	}
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}
