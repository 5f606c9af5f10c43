package modelcard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// facts are what a card is written from.
type facts struct {
	layout   record.Layout
	step     int
	run      record.Run
	settings []setting         // of the configuration, without paths of machines and time-outs
	values   map[string]string // the same by key
	shards   []string          // paths of the data's files, of the configuration
	manifest *dataset.Manifest // nil: not recorded
	dataKey  string
	rows     []record.Validation // of published versions, by version
	ledger   *ledger.Ledger
	events   map[string]int // by kind
	workers  []string       // what computed, without host names
	seals    []sealed       // by step
	result   *record.Result // of the exported step
	first    string         // digest of the weights that the lineage began with
	license  string         // of the hub's list
	notice   string         // what the licence is taken from
	damaged  []string       // kinds of records of which one cannot be read
	read     int            // records of the lineage
	unsealed int            // those of them without a seal
}

// get reads a record of the lineage into v.
func (f *facts) get(ctx context.Context, s artifact.Store, name string, v any) (ref artifact.Ref, seal string, err error) {
	ref, seal, err = artifact.GetSealed(ctx, s, name, v)
	if err == nil {
		f.read++
		if seal == "" {
			f.unsealed++
		}
	}
	return ref, seal, err
}

type setting struct{ key, value string }

// sealed is what a card says of a step's batch.
type sealed struct {
	step  int
	batch record.Sealed
	gap   *float64
	// divided: some micro-batch did not fit in memory, and the update took smaller ones.
	divided bool
}

// optional leaves out what is not there.
func optional(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// gather reads the records of a lineage up to a step. base is the directory of the base model's files.
func gather(ctx context.Context, s artifact.Store, l record.Layout, step int, base string) (*facts, error) {
	f := &facts{layout: l, step: step, events: map[string]int{}, values: map[string]string{}}
	if _, _, err := f.get(ctx, s, l.LineageFile(), &f.run); err != nil {
		return nil, err
	}
	if err := f.config(ctx, s); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"data set", func() error { return f.data(ctx, s) }},
		{"validations", func() error { return f.validations(ctx, s) }},
		{"ledger", func() error { return f.book(ctx, s) }},
		{"events and workers", func() error { return f.happened(ctx, s) }},
		{"batches and results", func() error { return f.steps(ctx, s) }},
		{"licence", func() error { return f.licensed(base) }},
	} {
		err := part.read()
		if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) { // the page says so; the model is none the worse
			f.damaged = append(f.damaged, part.name)
		} else if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// config flattens the configuration.
func (f *facts) config(ctx context.Context, s artifact.Store) error {
	data, _, err := s.Get(ctx, f.layout.ConfigFile())
	if err != nil {
		return err
	}
	if f.run.ConfigDigest != "" && f.run.ConfigDigest != artifact.Digest(data) {
		return fault.New(fault.Corrupt, "modelcard.Make", "%s is not the configuration that %s recorded", f.layout.ConfigFile(), f.layout.LineageFile()).
			WithHint("restore the file from a copy of the store")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // the text of numbers stays
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return fault.New(fault.Corrupt, "modelcard.Make", "%s: %w", f.layout.ConfigFile(), err)
	}
	f.flatten("", all)
	return nil
}

func (f *facts) flatten(prefix string, section map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(section)) {
		key := name
		if prefix != "" {
			key = prefix + "." + name
		}
		switch v := section[name].(type) {
		case map[string]any:
			f.flatten(key, v)
		case []any:
			var parts []string
			for _, p := range v {
				if text, ok := p.(string); ok {
					if key == "data.shards" {
						f.shards = append(f.shards, text)
					}
					parts = append(parts, shorten(text))
				}
			}
			f.keep(key, strings.Join(parts, ", "))
		case string:
			f.keep(key, shorten(v))
		case json.Number:
			f.keep(key, v.String())
		case bool:
			f.keep(key, map[bool]string{true: "true", false: "false"}[v])
		}
	}
}

// keep notes a setting. Bounds of time, of what is kept on disk and of the machine do not make a model.
func (f *facts) keep(key, value string) {
	f.values[key] = value
	for _, other := range []string{"timeouts.", "retention.", "sandbox.python", "sandbox.slots", "engine.threads"} {
		if strings.HasPrefix(key, other) && key != "sandbox.python_version" {
			return
		}
	}
	if value == "" {
		value = "-"
	}
	f.settings = append(f.settings, setting{key, value})
}

// shorten leaves the last part of a path.
func shorten(text string) string {
	if strings.ContainsRune(text, '/') {
		return path.Base(text)
	}
	return text
}

func (f *facts) data(ctx context.Context, s artifact.Store) error {
	var where record.Dataset
	if _, _, err := f.get(ctx, s, f.layout.Dataset(), &where); err != nil {
		return optional(err)
	}
	f.dataKey = where.Key
	var m dataset.Manifest
	if _, _, err := f.get(ctx, s, where.Dir+"/"+dataset.ManifestFile, &m); err != nil {
		return optional(err)
	}
	f.manifest = &m
	return nil
}

// validations reads those of published versions up to the exported step; the dev set is run on the export only after it is written.
func (f *facts) validations(ctx context.Context, s artifact.Store) error {
	prefix := f.layout.Root() + "validation/"
	names, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		rest := strings.TrimPrefix(name, prefix)
		if strings.Contains(rest, "/") || !strings.HasSuffix(rest, ".json") {
			continue
		}
		var v record.Validation
		if _, _, err := f.get(ctx, s, name, &v); err != nil {
			return err
		}
		if v.Source != "export" && v.Version <= f.step {
			f.rows = append(f.rows, v)
		}
	}
	slices.SortFunc(f.rows, func(a, b record.Validation) int { return a.Version - b.Version })
	return nil
}

func (f *facts) book(ctx context.Context, s artifact.Store) error {
	l, err := ledger.Load(ctx, s, f.layout)
	if err != nil {
		return optional(err)
	}
	if l.Records > 0 || l.Ended {
		f.ledger = &l
	}
	return nil
}

// happened counts events by kind and lists what kinds of process served the lineage.
func (f *facts) happened(ctx context.Context, s artifact.Store) error {
	names, err := s.List(ctx, f.layout.Events())
	if err != nil {
		return err
	}
	for _, name := range names {
		var e record.Event
		if _, _, err := f.get(ctx, s, name, &e); err != nil {
			return err
		}
		f.events[e.Kind]++
	}
	if names, err = s.List(ctx, f.layout.Workers()); err != nil {
		return err
	}
	for _, name := range names {
		var w record.Worker
		if _, _, err := f.get(ctx, s, name, &w); err != nil {
			return err
		}
		text := "steady " + w.Steady + ", engine " + w.Engine
		if w.Python != "" {
			text += ", Python " + w.Python
		}
		f.workers = append(f.workers, text)
	}
	slices.Sort(f.workers)
	f.workers = slices.Compact(f.workers)
	return nil
}

// steps reads the sealed batches and results up to the exported step.
func (f *facts) steps(ctx context.Context, s artifact.Store) error {
	first := 0
	if f.run.Parent != nil {
		first = f.run.Parent.Step
	}
	var v record.Version
	if _, _, err := f.get(ctx, s, f.layout.WeightsInfo(first), &v); optional(err) != nil {
		return err
	}
	f.first = v.Digest
	var trail record.Trail
	for step := first + 1; step <= f.step; step++ {
		b := sealed{step: step}
		ref, _, err := f.get(ctx, s, f.layout.Batch(step), &b.batch)
		there := err == nil
		if there {
			trail.Batch(step, ref)
		} else if err = optional(err); err != nil {
			return err
		}
		var r record.Result
		ref, seal, err := f.get(ctx, s, f.layout.Result(step), &r)
		if err == nil {
			if err := trail.Result(ref.Name, step, r, seal); err != nil {
				return err
			}
			b.gap, b.divided = r.Metrics.LogProbGap, r.Plan != nil
			if step == f.step {
				f.result = &r
			}
		} else if err = optional(err); err != nil {
			return err
		}
		if there {
			f.seals = append(f.seals, b)
		}
	}
	return nil
}

// licensed reads the licence of the base model from its file LICENSE; without one it is unknown.
func (f *facts) licensed(base string) error {
	f.license, f.notice = "unknown", "the base model's files name no licence: its publisher's terms apply"
	data, err := os.ReadFile(filepath.Join(base, "LICENSE"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Busy, "modelcard.Make", "%w", err)
	}
	if err != nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(data)), " ")
	f.license, f.notice = "other", "see LICENSE, which is the base model's"
	for name, words := range map[string][]string{
		"apache-2.0": {"Apache License", "Version 2.0"}, "mit": {"MIT License", "Permission is hereby granted, free of charge"},
	} {
		if strings.Contains(text, words[0]) && strings.Contains(text, words[1]) {
			f.license, f.notice = name, "by the text of LICENSE, which is the base model's"
		}
	}
	return nil
}

// shares of a validation: solved problems, and passed tests of each problem, with intervals.
func shares(v record.Validation) (acc, pass eval.Estimate, ok bool) {
	var solved, passed []float64
	for _, it := range v.Items {
		var share, all float64
		if it.Total > 0 {
			share = float64(it.Passed) / float64(it.Total)
		}
		if it.Total > 0 && it.Passed == it.Total {
			all = 1
		}
		solved, passed = append(solved, all), append(passed, share)
	}
	if len(solved) == 0 {
		return acc, pass, false
	}
	return eval.Mean(solved, 1), eval.Mean(passed, 1), true
}
