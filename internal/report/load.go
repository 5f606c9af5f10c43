package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// loader reads the parts one after the other and notes what is missing.
type loader struct {
	ctx   context.Context
	store artifact.Store
	l     record.Layout
	d     *Data
	// newest holds the sealed batches that samples are taken from, by step.
	sealed map[int]record.Sealed
	trail  record.Trail
	// read counts the records of the lineage, unsealed those of them without a seal.
	read, unsealed int
}

// get reads a record into v.
func (ld *loader) get(name string, v any) (ref artifact.Ref, seal string, err error) {
	ref, seal, err = artifact.GetSealed(ld.ctx, ld.store, name, v)
	if err == nil {
		ld.read++
		if seal == "" {
			ld.unsealed++
		}
	}
	return ref, seal, err
}

// Load reads everything that a lineage has left so far.
//
// A missing part is noted in Data.Missing. Errors: those of the store other than NotFound; Corrupt records of
// optional parts are noted as missing with their error, so that a damaged run still has a report.
func Load(ctx context.Context, s artifact.Store, l record.Layout) (*Data, error) {
	ld := &loader{ctx: ctx, store: s, l: l, d: &Data{Layout: l}, sealed: map[int]record.Sealed{}}
	if err := ld.load([]part{
		{"Run record", "the run has not started", ld.run},
		{"Configuration", "the run has not started", ld.config},
		{"Batches", "no batch was sealed", ld.batches},
		{"Results", "no step was trained", ld.results},
		{"Validations", "no validation has finished", ld.validations},
		{"Ledger", "no step was sealed", ld.ledger},
		{"Events", "", ld.events},
		{"Workers", "no worker has served the run", ld.workers},
		{"First version", "no version is published", ld.base},
		{"Dataset manifest", "the data set is not prepared", ld.dataset},
		{"Export certificate", "the model is not exported", ld.export},
		{"Sample trajectories", "no trajectory was trained", ld.samples},
	}); err != nil {
		return nil, err
	}
	if ld.unsealed > 0 {
		ld.missing("Seals", fmt.Sprintf("%s of %s read for this report carry none, so that a change of them is not noticed: an older build wrote them, or the seals were removed",
			integer(ld.unsealed), plural(ld.read, "record", "records")))
	}
	ld.places()
	return ld.d, nil
}

// LoadCurves is Load without what curves do not need: ledger, events, data set, export and trajectories.
func LoadCurves(ctx context.Context, s artifact.Store, l record.Layout) (*Data, error) {
	ld := &loader{ctx: ctx, store: s, l: l, d: &Data{Layout: l}, sealed: map[int]record.Sealed{}}
	return ld.d, ld.load([]part{
		{"Run record", "the run has not started", ld.run},
		{"Configuration", "the run has not started", ld.config},
		{"Batches", "no batch was sealed", ld.batches},
		{"Results", "no step was trained", ld.results},
		{"Validations", "no validation has finished", ld.validations},
	})
}

// part is a part of the data, with what its absence means.
type part struct {
	name, absent string
	load         func() error
}

// load reads the parts in order and notes what is missing.
func (ld *loader) load(parts []part) error {
	for _, p := range parts {
		err := p.load()
		switch {
		case err == nil:
		case ld.ctx.Err() != nil:
			return ld.ctx.Err()
		case fault.Is(err, fault.NotFound):
			ld.missing(p.name, p.absent)
		case fault.Is(err, fault.Corrupt), fault.Is(err, fault.Invalid):
			ld.missing(p.name, err.Error())
		default:
			return err
		}
	}
	return nil
}

func (ld *loader) missing(part, why string) {
	ld.d.Missing = append(ld.d.Missing, Missing{part, why})
}

// absent is the error of a part without any record.
func absent(part string) error { return fault.New(fault.NotFound, "report.Load", "no %s", part) }

func (ld *loader) run() error {
	var r record.Run
	if _, _, err := ld.get(ld.l.LineageFile(), &r); err != nil {
		return err
	}
	ld.d.Run = &r
	all, err := record.Lineages(ld.ctx, ld.store, ld.l.Run)
	if err != nil {
		return err
	}
	for _, l := range all {
		text := l.Lineage
		if p := l.Parent; l.Opened != "" && p != nil {
			text += fmt.Sprintf(" (after step %d of %s)", p.Step, p.Lineage)
		}
		ld.d.Lineages = append(ld.d.Lineages, text)
	}
	return nil
}

// workers reads the records of the processes that served the lineage.
func (ld *loader) workers() error {
	names, err := ld.store.List(ld.ctx, ld.l.Workers())
	if err != nil {
		return err
	}
	for _, name := range names {
		var w record.Worker
		if _, _, err := ld.get(name, &w); err != nil {
			return err
		}
		ld.d.Workers = append(ld.d.Workers, w)
	}
	if len(names) == 0 {
		return absent("worker")
	}
	return nil
}

// base reads the digest of the weights of the first version.
func (ld *loader) base() error {
	first := 0
	if ld.d.Run != nil && ld.d.Run.Parent != nil {
		first = ld.d.Run.Parent.Step
	}
	var v record.Version
	_, _, err := ld.get(ld.l.WeightsInfo(first), &v)
	ld.d.Base = v.Digest
	return err
}

func (ld *loader) config() error {
	data, _, err := ld.store.Get(ld.ctx, ld.l.ConfigFile())
	if err != nil {
		return err
	}
	if r := ld.d.Run; r != nil && r.ConfigDigest != "" && r.ConfigDigest != artifact.Digest(data) {
		return fault.New(fault.Corrupt, "report.Load", "%s is not the configuration that %s recorded", ld.l.ConfigFile(), ld.l.LineageFile()).
			WithHint("restore the file from a copy of the store")
	}
	var c struct {
		Mode string `json:"mode"`
		Run  struct {
			Steps int `json:"steps"`
		} `json:"run"`
		Rollout struct {
			GroupSize int `json:"group_size"`
		} `json:"rollout"`
	}
	var pretty bytes.Buffer
	if err := cmp.Or(json.Unmarshal(data, &c), json.Indent(&pretty, data, "", "  ")); err != nil {
		return fault.New(fault.Corrupt, "report.Load", "%s: %w", ld.l.ConfigFile(), err)
	}
	ld.d.Config = bytes.TrimSpace(pretty.Bytes())
	ld.d.Plan = Plan{Mode: c.Mode, Steps: c.Run.Steps, GroupSize: c.Rollout.GroupSize}
	return nil
}

// numbered reads every DIR/NNNNNN.json of the lineage in the order of its number.
func numbered[T any](ld *loader, dir string, use func(n int, v T, ref artifact.Ref, seal string) error) error {
	names, err := ld.store.List(ld.ctx, ld.l.Root()+dir+"/")
	if err != nil {
		return err
	}
	seen := 0
	for _, name := range names {
		n, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".json"))
		if err != nil || !strings.HasSuffix(name, ".json") {
			continue
		}
		var v T
		ref, seal, err := ld.get(name, &v)
		if fault.Is(err, fault.NotFound) {
			continue // retention removed it in the meantime
		} else if err != nil {
			return err
		}
		if err := use(n, v, ref, seal); err != nil {
			return err
		}
		seen++
	}
	if seen == 0 {
		return absent(dir)
	}
	return nil
}

// step returns the entry of a step, made if needed.
func (ld *loader) step(n int) *Step {
	i, ok := slices.BinarySearchFunc(ld.d.Steps, n, func(s Step, n int) int { return cmp.Compare(s.Step, n) })
	if !ok {
		ld.d.Steps = slices.Insert(ld.d.Steps, i, Step{Step: n})
	}
	return &ld.d.Steps[i]
}

func (ld *loader) batches() error {
	return numbered(ld, "batches", func(n int, b record.Sealed, ref artifact.Ref, _ string) error {
		s := ld.step(n)
		ld.trail.Batch(n, ref)
		s.Batch, s.Groups, s.Samples = &b.Rollout, len(b.Groups), len(b.Samples)
		b.Plan.MicroBatches = nil
		ld.sealed[n] = b
		return nil
	})
}

func (ld *loader) results() error {
	return numbered(ld, "results", func(n int, r record.Result, ref artifact.Ref, seal string) error {
		if err := ld.trail.Result(ref.Name, n, r, seal); err != nil {
			return err
		}
		s := ld.step(n)
		s.Update, s.WeightsDigest, s.StateDigest = &r.Metrics, r.WeightsDigest, r.StateDigest
		s.Trainer, s.Replayed = r.Trainer, r.Replayed
		return nil
	})
}

func (ld *loader) validations() error {
	names, err := ld.store.List(ld.ctx, ld.l.Root()+"validation/")
	if err != nil {
		return err
	}
	for _, name := range names {
		// Records lie in the folder itself, the units of each validation one level below.
		rest := strings.TrimPrefix(name, ld.l.Root()+"validation/")
		if strings.Contains(rest, "/") || !strings.HasSuffix(rest, ".json") {
			continue
		}
		var v record.Validation
		if _, _, err := ld.get(name, &v); err != nil {
			return err
		}
		ld.d.Validations = append(ld.d.Validations, v)
	}
	slices.SortStableFunc(ld.d.Validations, func(a, b record.Validation) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
	})
	if len(ld.d.Validations) == 0 {
		return absent("validation")
	}
	return nil
}

// order puts the export's repeat last.
func order(v record.Validation) int {
	if v.Source == sourceExport {
		return 1
	}
	return 0
}

func (ld *loader) ledger() error {
	l, err := ledger.Load(ld.ctx, ld.store, ld.l)
	if err != nil {
		return err
	}
	if l.Records == 0 && !l.Ended {
		return absent("ledger")
	}
	ld.d.Ledger = &l
	return nil
}

func (ld *loader) events() error {
	names, err := ld.store.List(ld.ctx, ld.l.Events())
	if err != nil {
		return err
	}
	for _, name := range names {
		var e record.Event
		if _, _, err := ld.get(name, &e); err != nil {
			return err
		}
		ld.d.Events = append(ld.d.Events, e)
	}
	slices.SortStableFunc(ld.d.Events, func(a, b record.Event) int { return compareTimes(a.Time, b.Time) })
	return nil
}

// places lists what a person may want to open.
func (ld *loader) places() {
	candidates := []struct {
		what, name string
		there      bool
	}{
		{"exported model", ld.l.Export(), ld.d.Export != nil},
		{"records of the run", strings.TrimSuffix(ld.l.Root(), "/"), ld.d.Run != nil},
	}
	for _, c := range candidates {
		if !c.there {
			continue
		}
		ld.d.Places = append(ld.d.Places, Place{c.what, ld.store.Where(c.name)})
	}
}
