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
// A missing part is noted in Data.Missing, and so are the damaged records of a part, whose others are read: a damaged run still has a
// report. Errors: those of the store other than NotFound.
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
		case isDamage(err):
			ld.missing(p.name, fault.Text(err))
		default:
			return err
		}
	}
	return nil
}

func (ld *loader) missing(part, why string) {
	ld.d.Missing = append(ld.d.Missing, Missing{part, why})
}

// isDamage reports whether an error is about the content of a record.
func isDamage(err error) bool { return fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) }

// damage gathers the damaged records of a part, of which the others are read.
type damage struct{ errs []error }

// took notes err if it is about the content of a record, and reports whether it is.
func (x *damage) took(err error) bool {
	if !isDamage(err) {
		return false
	}
	x.errs = append(x.errs, err)
	return true
}

// err names the damaged records, nil without one. seen is the number of the part's other records; with neither, the part is absent.
func (x *damage) err(part string, seen int) error {
	const most = 5
	switch n := len(x.errs); {
	case n == 0 && seen == 0:
		return absent(part)
	case n == 0:
		return nil
	case n == 1:
		return x.errs[0]
	default:
		var texts []string
		for _, err := range x.errs[:min(n, most)] {
			texts = append(texts, fault.Text(err))
		}
		if n > most {
			texts = append(texts, fmt.Sprintf("and %s more", integer(n-most)))
		}
		return fault.New(fault.Corrupt, "", "%s damaged: %s", plural(n, "record is", "records are"), strings.Join(texts, "; "))
	}
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
	var bad damage
	for _, name := range names {
		var w record.Worker
		if _, _, err := ld.get(name, &w); bad.took(err) {
			continue
		} else if err != nil {
			return err
		}
		ld.d.Workers = append(ld.d.Workers, w)
	}
	return bad.err("worker", len(ld.d.Workers))
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

// numbered reads every DIR/NNNNNN.json of the lineage in the order of its number. A record that cannot be read, or that use
// says is wrong (then read is true), goes to damaged, if that is not nil, and the next one is taken.
func numbered[T any](ld *loader, dir string, use func(n int, v T, ref artifact.Ref, seal string) error, damaged func(n int, read bool)) error {
	names, err := ld.store.List(ld.ctx, ld.l.Root()+dir+"/")
	if err != nil {
		return err
	}
	var bad damage
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
		}
		read := err == nil
		if read {
			err = use(n, v, ref, seal)
		}
		if bad.took(err) {
			if damaged != nil {
				damaged(n, read)
			}
			continue
		} else if err != nil {
			return err
		}
		seen++
	}
	return bad.err(dir, seen)
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
	}, nil)
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
	}, func(n int, read bool) {
		ld.trail.Unreadable(n)
		s := ld.step(n)
		if s.Damaged = "is damaged"; read {
			s.Damaged = "does not fit the records before it"
		}
	})
}

func (ld *loader) validations() error {
	names, err := ld.store.List(ld.ctx, ld.l.Root()+"validation/")
	if err != nil {
		return err
	}
	var bad damage
	for _, name := range names {
		// Records lie in the folder itself, the units of each validation one level below.
		rest := strings.TrimPrefix(name, ld.l.Root()+"validation/")
		if strings.Contains(rest, "/") || !strings.HasSuffix(rest, ".json") {
			continue
		}
		var v record.Validation
		if _, _, err := ld.get(name, &v); bad.took(err) {
			continue
		} else if err != nil {
			return err
		}
		ld.d.Validations = append(ld.d.Validations, v)
	}
	slices.SortStableFunc(ld.d.Validations, func(a, b record.Validation) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
	})
	return bad.err("validation", len(ld.d.Validations))
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
	var bad damage
	for _, name := range names {
		var e record.Event
		if _, _, err := ld.get(name, &e); bad.took(err) {
			continue
		} else if err != nil {
			return err
		}
		ld.d.Events = append(ld.d.Events, e)
	}
	slices.SortStableFunc(ld.d.Events, func(a, b record.Event) int { return compareTimes(a.Time, b.Time) })
	if len(bad.errs) == 0 {
		return nil // a run without events is a good one
	}
	return bad.err("event", len(ld.d.Events))
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
