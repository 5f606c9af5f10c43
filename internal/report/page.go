package report

import (
	"cmp"
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/record"
)

// page is what the template shows: texts and coordinates, nothing left to decide.
type page struct {
	Title, Subtitle, Root string
	Style                 template.CSS
	Tiles                 []tile
	Missing               []Missing
	Dev                   devView
	Charts                []chart
	Steps                 *table
	Funnel                *funnel
	Samples               []sampleView
	Ledger                *ledgerView
	Events                []eventView
	EventsNote            string
	Export                *exportView
	Props                 []prop
	Config                string
	Live                  *Frame // nil in the file of a run
}

type tile struct {
	Name, Value, Note, Tone string
	Wide, Code              bool
}

type head struct{ Name, Doc string }

type tableRow struct {
	Name   string
	Cells  []string
	Repeat bool
}

type table struct {
	Heads []head
	Rows  []tableRow
}

type prop struct{ Name, Value string }

type eventView struct{ When, Kind, Where, Message, Tone string }

type exportView struct {
	Verdict, Tone string
	Props         []prop
	Checks        []Check
}

type sampleView struct {
	Title  string
	Facts  []prop
	Prompt string
	Turns  []Turn
}

func newPage(d *Data) page {
	p := page{
		Title: "Run " + d.Layout.Run, Root: strings.TrimSuffix(d.Layout.Root(), "/"), Style: pageStyle,
		Subtitle: subtitle(d), Tiles: tiles(d), Missing: d.Missing,
		Dev: newDev(d), Charts: metricCharts(d), Steps: stepTable(d),
		Funnel: newFunnel(d.Dataset), Ledger: newLedger(d.Ledger), Export: newExport(d),
		Props: runProps(d), Config: string(d.Config),
	}
	p.Events, p.EventsNote = events(d)
	for _, s := range d.Samples {
		p.Samples = append(p.Samples, newSample(s))
	}
	return p
}

func subtitle(d *Data) string {
	var parts []string
	if r := d.Run; r != nil {
		if r.Recipe != "" {
			parts = append(parts, "recipe "+r.Recipe)
		}
		parts = append(parts, r.BaseModel, r.Engine+" engine")
		if d.Plan.Mode != "" {
			parts = append(parts, "mode "+d.Plan.Mode)
		}
		parts = append(parts, "started "+clock(r.Started))
	}
	return strings.Join(parts, " · ")
}

// tiles are the headline.
func tiles(d *Data) []tile {
	out := []tile{devTile(d)}
	steps := tile{Name: "Training steps"}
	steps.Value = integer(d.reached())
	if d.Plan.Steps > 0 {
		steps.Value += " of " + integer(d.Plan.Steps)
	}
	if steps.Note = progress(d); d.behind() != "" {
		steps.Tone = "bad"
	}
	out = append(out, steps)
	trained := tile{Name: "Trajectories trained", Value: integer(d.trained())}
	if d.Ledger != nil {
		c := d.Ledger.Count()
		trained.Note = plural(c.Dropped, "group", "groups") + " dropped"
		if d.Ledger.Balance() != nil {
			trained.Note, trained.Tone = trained.Note+"; the ledger does not balance", "bad"
		}
	}
	out = append(out, trained, faultTile(d), exportTile(d))
	if s := d.lastResult(); s != nil && s.WeightsDigest != "" {
		t := tile{Name: fmt.Sprintf("Weights of step %d", s.Step), Value: short(s.WeightsDigest), Note: "start of the SHA-256", Code: true}
		if why := d.behind(); why != "" {
			t.Note, t.Tone = t.Note+"; "+why, "bad"
		}
		out = append(out, t)
	}
	return out
}

// progress says how far a run is, and whether its newest result is damaged.
func progress(d *Data) string {
	n, text := d.reached(), "training has not ended"
	switch {
	case d.Ledger != nil && d.Ledger.Ended && n > 0 && n == d.Plan.Steps:
		text = "training is complete"
	case d.Ledger != nil && d.Ledger.Ended:
		text = "training has ended early"
	}
	if why := d.behind(); why != "" {
		text += "; " + why
	}
	return text
}

func devTile(d *Data) tile {
	t := tile{Name: "Dev accuracy", Value: "not measured", Wide: true}
	pub := d.Published()
	if len(pub) == 0 {
		return t
	}
	first, last := pub[0], pub[len(pub)-1]
	t.Name = fmt.Sprintf("Dev accuracy at step %d", last.Version)
	t.Value = percent(last.Metrics.Acc)
	t.Note = fmt.Sprintf("%s of %s problems solved", integer(last.Metrics.Solved), integer(last.Problems))
	if len(pub) > 1 {
		t.Name = fmt.Sprintf("Dev accuracy, step %d to step %d", first.Version, last.Version)
		t.Value = unbroken(percent(first.Metrics.Acc)) + " → " + unbroken(percent(last.Metrics.Acc))
		t.Note = fmt.Sprintf("%s; %s, then %s of %s problems solved", points(first.Metrics.Acc, last.Metrics.Acc),
			integer(first.Metrics.Solved), integer(last.Metrics.Solved), integer(last.Problems))
	}
	return t
}

func faultTile(d *Data) tile {
	failures, recovered := d.faults()
	t := tile{Name: "Faults", Value: integer(failures), Note: "none recorded"}
	if failures+recovered > 0 {
		t.Note = plural(recovered, "recovery", "recoveries") + " recorded"
	}
	if s := d.lastResult(); failures > 0 && s != nil && s.Step == d.Plan.Steps {
		t.Name = "Faults survived"
	}
	return t
}

func exportTile(d *Data) tile {
	switch e := d.Export; {
	case e == nil:
		return tile{Name: "Export", Value: "none", Note: "no certificate"}
	case e.Verified:
		return tile{Name: "Export", Value: "verified", Tone: "good", Note: plural(e.Tensors, "tensor", "tensors") + " equal to their rounded sources"}
	}
	return tile{Name: "Export", Value: "not verified", Tone: "bad", Note: "see the checks"}
}

func newExport(d *Data) *exportView {
	e := d.Export
	if e == nil {
		return nil
	}
	v := &exportView{Verdict: "The export is certified: every check passed.", Tone: "good", Checks: e.Checks}
	if !e.Verified {
		v.Verdict, v.Tone = "The export is not verified.", "bad"
	}
	v.Props = []prop{{"Directory", d.Layout.Export()}}
	if e.Digest != "" {
		v.Props = append(v.Props,
			prop{"Step", integer(e.Step)},
			prop{"Weights digest", e.Digest},
			prop{"Tensors", fmt.Sprintf("%s, %s parameters, %s", integer(e.Tensors), group(strconv.FormatInt(e.Parameters, 10)), bytesOf(e.Bytes))})
	}
	return v
}

func runProps(d *Data) []prop {
	r := d.Run
	if r == nil {
		return nil
	}
	props := []prop{
		{"Run", r.Run},
		{"Lineage", d.Layout.Lineage},
		{"Workflow execution", r.Owner},
		{"Started", clock(r.Started)},
		{"Recipe", r.Recipe},
		{"steady", r.Steady},
		{"Engine", r.Engine},
		{"Base model", r.BaseModel},
		{"Base weights", d.Base},
		{"Configuration digest", r.ConfigDigest},
	}
	if p := r.Parent; p != nil {
		props = append(props, prop{"Started from", fmt.Sprintf("step %d of run %s, lineage %s", p.Step, p.Run, p.Lineage)})
	}
	if len(d.Lineages) > 1 {
		props = append(props, prop{"Lineages of the run", strings.Join(d.Lineages, ", ")})
	}
	if why := d.behind(); why != "" {
		props = append(props, prop{fmt.Sprintf("Result of step %d", d.reached()), why})
	}
	if s := d.lastResult(); s != nil {
		props = append(props,
			prop{"Trainer", s.Trainer},
			prop{fmt.Sprintf("Weights of step %d", s.Step), s.WeightsDigest},
			prop{fmt.Sprintf("Trainer state of step %d", s.Step), s.StateDigest})
	}
	if d.Dataset != nil {
		props = append(props, prop{"Dataset", d.Dataset.Dir})
	}
	for _, w := range d.Workers {
		what := []string{"steady " + w.Steady, "engine " + w.Engine}
		if w.Python != "" {
			what = append(what, "Python "+w.Python, w.Sandbox)
		}
		props = append(props, prop{"Worker " + w.Host, strings.Join(what, "; ")})
	}
	for i := range props {
		props[i].Value = cmp.Or(props[i].Value, "not recorded")
	}
	return props
}

// maxEvents bounds the time line; the oldest and the newest are shown.
const maxEvents = 300

func events(d *Data) (out []eventView, note string) {
	list := d.Events
	if len(list) > maxEvents {
		note = fmt.Sprintf("%s between the oldest and the newest are left out.", plural(len(list)-maxEvents, "event", "events"))
		list = append(append([]record.Event{}, list[:maxEvents/2]...), list[len(list)-maxEvents/2:]...)
	}
	for _, e := range list {
		v := eventView{When: clock(e.Time), Kind: e.Kind, Where: e.Where, Message: e.Message, Tone: "bad"}
		switch {
		case recoveries[e.Kind]:
			v.Tone = "good"
		case commands[e.Kind]:
			v.Tone = ""
		}
		if d.Run != nil {
			if after := since(d.Run.Started, e.Time); after != "" {
				v.When += ", " + after
			}
		}
		if e.Step > 0 {
			v.When += ", step " + integer(e.Step)
		}
		out = append(out, v)
	}
	return out, note
}
