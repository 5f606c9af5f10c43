package activities

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// openLineage opens a lineage that begins with the state after a step of another one of the run. It has the configuration, the model's small
// files and the data set of its parent. The parent is only read, so this may be done while it is trained.
//
// Idempotence: by the id of the request. The lineage's record is written first and takes the name; what a lost attempt left is
// completed by the next. A request with another id gets the next name.
func (c *Control) openLineage(ctx context.Context, q contract.OpenLineageRequest, _ *Beat) (contract.OpenLineageResult, error) {
	parent := q.Layout()
	all, err := record.Lineages(ctx, c.store(), q.Run)
	if err != nil {
		return contract.OpenLineageResult{}, err
	}
	var own *record.Run
	var from record.Run
	for _, r := range all {
		if r.Opened == q.ID && q.ID != "" {
			own = &r
		}
		if r.Lineage == q.Lineage {
			from = r
		}
	}
	if own == nil {
		if own, err = c.claimLineage(ctx, q, from, len(all)); err != nil {
			return contract.OpenLineageResult{}, err
		}
	}
	if p := own.Parent; p == nil || *p != (record.Parent{Run: q.Run, Lineage: q.Lineage, Step: q.Step}) || own.Start == nil {
		return contract.OpenLineageResult{}, fault.New(fault.Invalid, "OpenLineage", "the rollback %s opened lineage %s from %+v already", q.ID, own.Lineage, p)
	}
	l := record.Layout{Run: q.Run, Lineage: own.Lineage}
	if err := c.copyLineage(ctx, parent, l); err != nil {
		return contract.OpenLineageResult{}, err
	}
	return contract.OpenLineageResult{Lineage: own.Lineage, Start: *own.Start}, nil
}

// claimLineage writes the record of a new lineage, after checking that its parent can give it a state.
func (c *Control) claimLineage(ctx context.Context, q contract.OpenLineageRequest, from record.Run, n int) (*record.Run, error) {
	const op = "OpenLineage"
	first := 0
	if from.Parent != nil {
		first = from.Parent.Step
	}
	if q.Step < first {
		return nil, fault.New(fault.Invalid, op, "step %d is before the first step of lineage %s, %d", q.Step, q.Lineage, first)
	}
	if q.Step > first {
		ok, err := c.store().Exists(ctx, q.Layout().Result(q.Step))
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fault.New(fault.Invalid, op, "step %d of lineage %s has no result", q.Step, q.Lineage).WithHint("name a step that was trained")
		}
	}
	led, err := ledger.At(ctx, c.store(), q.Layout(), q.Step)
	if err != nil {
		return nil, err
	}
	if err := led.Balance(); err != nil {
		return nil, err
	}
	start := led.Resume()
	for ; ; n++ {
		r := from
		r.Lineage, r.Opened, r.Start = record.LineageName(n), q.ID, &start
		r.Parent = &record.Parent{Run: q.Run, Lineage: q.Lineage, Step: q.Step}
		r.Steady, r.Started = c.Version, time.Now().UTC().Format(time.RFC3339)
		crashpoint.Here("control.lineage.before")
		_, err := artifact.PutJSON(ctx, c.store(), record.Layout{Run: q.Run, Lineage: r.Lineage}.LineageFile(), r)
		if err == nil {
			crashpoint.Here("control.lineage.after")
			return &r, nil
		}
		if !fault.Is(err, fault.Stale) {
			return nil, err
		}
		var old record.Run // another attempt of this request may have been quicker
		if _, err := artifact.GetJSON(ctx, c.store(), record.Layout{Run: q.Run, Lineage: r.Lineage}.LineageFile(), &old); err != nil {
			return nil, err
		}
		if old.Opened == q.ID {
			return &old, nil
		}
	}
}

// copyLineage gives a lineage what it shares with its parent. What is there already is equal, or the store refuses it.
func (c *Control) copyLineage(ctx context.Context, parent, l record.Layout) error {
	base, err := c.store().List(ctx, parent.Base()+"/")
	if err != nil {
		return err
	}
	names := map[string]string{parent.ConfigFile(): l.ConfigFile(), parent.Dataset(): l.Dataset()}
	for _, name := range base {
		names[name] = path.Join(l.Base(), strings.TrimPrefix(name, parent.Base()+"/"))
	}
	for _, from := range slices.Sorted(maps.Keys(names)) {
		data, _, err := c.store().Get(ctx, from)
		if err != nil {
			return err
		}
		if _, err := c.store().Put(ctx, names[from], data); err != nil {
			return err
		}
		crashpoint.Here("control.lineage.file")
	}
	if err := c.noteBase(ctx, l); err != nil {
		return err
	}
	crashpoint.Here("control.lineage.baseinfo")
	return nil
}

// startOf returns where the data of a lineage goes on that begins at a step of another run's lineage.
func startOf(ctx context.Context, s artifact.Store, p record.Parent) (record.Start, error) {
	l := record.Layout{Run: p.Run, Lineage: p.Lineage}
	var led record.Ledger
	_, err := artifact.GetJSON(ctx, s, l.Ledger(p.Step), &led)
	if !fault.Is(err, fault.NotFound) {
		return record.Start{Cursor: led.Cursor, NextGroup: led.NextGroup}, err
	}
	var r record.Run // the first step of a lineage that a rollback opened has no ledger record
	if _, rerr := artifact.GetJSON(ctx, s, l.LineageFile(), &r); rerr != nil || r.Start == nil || r.Parent == nil || r.Parent.Step != p.Step {
		return record.Start{}, err
	}
	return *r.Start, nil
}

// branches returns the steps of a lineage that later lineages of the run began with.
func branches(ctx context.Context, s artifact.Store, l record.Layout) (map[int]bool, error) {
	all, err := record.Lineages(ctx, s, l.Run)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	steps := map[int]bool{}
	for _, r := range all {
		if p := r.Parent; p != nil && p.Run == l.Run && p.Lineage == l.Lineage {
			steps[p.Step] = true
		}
	}
	return steps, nil
}
