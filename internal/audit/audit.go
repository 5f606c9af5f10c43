// Package audit compares everything that a run has left in the store with what the records say of it: seals, the chain of results, batches, the files
// that they name, and the books. It only reads. Weights, checkpoints and exports have digests of their own, which their readers compare.
package audit

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// Result says what was read, and what is wrong.
type Result struct {
	Run      string    `json:"run"`
	Lineages []string  `json:"lineages"`
	Records  int       `json:"records"`  // documents
	Unsealed int       `json:"unsealed"` // of them without a seal, of builds that wrote none
	Steps    int       `json:"steps"`    // results, each compared with its batch and the result before
	Files    int       `json:"files"`    // trajectories, verdicts and base files that a record names
	Bytes    int64     `json:"bytes"`    // of all that was read
	Findings []Finding `json:"findings"`
}

// Finding is a difference.
type Finding struct {
	Lineage string `json:"lineage"`
	What    string `json:"what"` // with the name of the file
	Hint    string `json:"hint,omitempty"`
}

type auditor struct {
	ctx   context.Context
	store artifact.Store
	l     record.Layout
	res   *Result
}

// Run looks at all lineages of a run. What is damaged or gone is a finding; an error is that the store could not be read: NotFound (no such
// run), Busy and the like.
func Run(ctx context.Context, s artifact.Store, run string) (Result, error) {
	res := Result{Run: run, Findings: []Finding{}}
	for n := 0; ; n++ {
		a := &auditor{ctx: ctx, store: s, l: record.Layout{Run: run, Lineage: record.LineageName(n)}, res: &res}
		there, err := s.Exists(ctx, a.l.LineageFile())
		if err != nil {
			return res, err
		}
		if !there && n == 0 {
			return res, fault.New(fault.NotFound, "audit.Run", "there is no run %s", run).WithHint("name a run of the store")
		}
		if !there {
			return res, nil
		}
		res.Lineages = append(res.Lineages, a.l.Lineage)
		for _, part := range []func() error{a.records, a.config, a.base, a.steps, a.books} {
			if err := a.note(part()); err != nil {
				return res, err
			}
		}
	}
}

// note makes a finding of a difference, and returns every other error.
func (a *auditor) note(err error) error {
	switch fault.KindOf(err) {
	case fault.Corrupt, fault.NotFound, fault.Invalid:
		a.res.Findings = append(a.res.Findings, Finding{a.l.Lineage, text(err), fault.HintOf(err)})
		return nil
	}
	return err
}

// text is an error without the function that it is from.
func text(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok && f == err { //nolint:errorlint // one that is wrapped has more to say
		return f.Err.Error()
	}
	return err.Error()
}

// records verifies the seal of every document. Checkpoints, exports and base files have digests in their own form.
func (a *auditor) records() error {
	names, err := a.store.List(a.ctx, a.l.Root())
	if err != nil {
		return err
	}
	if a.l.LineageFile() == a.l.RunFile() {
		names = append([]string{a.l.RunFile()}, names...)
	}
	for _, name := range names {
		section, _, _ := strings.Cut(strings.TrimPrefix(name, a.l.Root()), "/")
		if !strings.HasSuffix(name, ".json") || name == a.l.ConfigFile() || section == "checkpoints" || strings.HasSuffix(section, ".corrupt") ||
			section == path.Base(a.l.Export()) || section == path.Base(a.l.Base()) {
			continue
		}
		data, _, err := a.store.Get(a.ctx, name)
		if fault.Is(err, fault.NotFound) {
			continue // retention was quicker
		}
		if err != nil {
			return err
		}
		a.res.Records++
		a.res.Bytes += int64(len(data))
		seal, err := artifact.Decode(name, data, nil)
		if err == nil && seal == "" {
			a.res.Unsealed++
		}
		if err := a.note(err); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) config() error {
	var run record.Run
	if _, err := artifact.GetJSON(a.ctx, a.store, a.l.LineageFile(), &run); fault.Is(err, fault.Corrupt) {
		return nil // records has said so
	} else if err != nil {
		return err
	}
	_, ref, err := a.store.Get(a.ctx, a.l.ConfigFile())
	if err == nil && run.ConfigDigest != "" && ref.Digest != run.ConfigDigest {
		err = fault.New(fault.Corrupt, "audit.Run", "%s has digest %.12s, %s recorded %.12s", a.l.ConfigFile(), ref.Digest, a.l.LineageFile(), run.ConfigDigest).
			WithHint("restore the file from a copy of the store")
	}
	a.res.Bytes += ref.Size
	return err
}

// base compares the files of the base model; runs of older builds have no record of them.
func (a *auditor) base() error {
	var base record.Base
	if _, err := artifact.GetJSON(a.ctx, a.store, a.l.BaseInfo(), &base); err != nil {
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
			return nil
		}
		return err
	}
	return a.files(base.Files...)
}

// files compares files with their digests.
func (a *auditor) files(refs ...artifact.Ref) error {
	for _, ref := range refs {
		a.res.Files++
		a.res.Bytes += ref.Size
		_, err := artifact.Fetch(a.ctx, a.store, ref)
		if err := a.note(err); err != nil {
			return err
		}
	}
	return nil
}

// steps compares results with their batches and with each other, and the files of groups with their batches.
func (a *auditor) steps() error {
	var trail record.Trail
	err := a.each("batches", func(step int, name string) error {
		var b record.Sealed
		ref, err := artifact.GetJSON(a.ctx, a.store, name, &b)
		if fault.Is(err, fault.Corrupt) {
			return nil // records has said so
		}
		if err != nil {
			return err
		}
		trail.Batch(step, ref)
		for _, g := range b.Groups {
			if err := a.files(g.File, g.Verdicts); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.each("results", func(step int, name string) error {
		var r record.Result
		_, seal, err := artifact.GetSealed(a.ctx, a.store, name, &r)
		if fault.Is(err, fault.Corrupt) {
			trail.Unread(step)
			return nil
		}
		if err != nil {
			return err
		}
		a.res.Steps++
		return trail.Result(name, step, r, seal)
	})
}

// each calls use for the records of steps, in order.
func (a *auditor) each(dir string, use func(step int, name string) error) error {
	names, err := a.store.List(a.ctx, a.l.Root()+dir+"/")
	if err != nil {
		return err
	}
	for _, name := range names {
		step, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".json"))
		if err != nil {
			continue
		}
		if err := a.note(use(step, name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) books() error {
	l, err := ledger.Load(a.ctx, a.store, a.l)
	if err != nil {
		if fault.Is(err, fault.Corrupt) && a.named(err) {
			return nil
		}
		return err
	}
	return l.Balance()
}

// named reports whether a finding says the same.
func (a *auditor) named(err error) bool {
	for _, f := range a.res.Findings {
		if f.Lineage == a.l.Lineage && f.What == text(err) {
			return true
		}
	}
	return false
}
