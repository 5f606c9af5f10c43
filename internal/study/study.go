package study

import (
	"fmt"
	"slices"

	"github.com/steadyrl/steady/internal/record"
)

// Plan is what a study compares.
type Plan struct {
	Study       string       `json:"study"` // id
	Title       string       `json:"title"`
	About       string       `json:"about"`
	Metric      string       `json:"metric"` // acc or pass_rate
	Arms        []Arm        `json:"arms"`
	Seeds       []uint64     `json:"seeds"`
	Comparisons []Comparison `json:"comparisons"`
	Limits      Limits       `json:"limits"`
}

// Arm is one of the configurations.
type Arm struct {
	Name  string `json:"name"`
	Label string `json:"label"` // of its line
	Panel string `json:"panel"` // of the picture, may be empty
}

// Full is what tables call the arm.
func (a Arm) Full() string {
	switch {
	case a.Label == "":
		return a.Name
	case a.Panel == "":
		return a.Label
	}
	return a.Label + ", " + a.Panel
}

// Comparison is a difference that is asked for: A minus B.
type Comparison struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Gate bool   `json:"gate"`
}

// Result is what the runs say.
type Result struct {
	Plan        Plan         `json:"plan"`
	Arms        []ArmResult  `json:"arms"`
	Differences []Difference `json:"differences"`
	// Done of All runs have a result.
	Done int `json:"done"`
	All  int `json:"all"`
	// Passed says whether every gate holds; nil without a gate.
	Passed *bool `json:"passed"`
}

// ArmResult is what the runs of an arm say. Value and intervals are absent without a run that has a result.
type ArmResult struct {
	Arm   Arm          `json:"arm"`
	Runs  []RunResult  `json:"runs"` // by seed
	Start *float64     `json:"start"`
	Value *float64     `json:"value"`
	Range *Interval    `json:"interval"` // holds OverProblems and OverSeeds
	Pro   *Interval    `json:"interval_over_problems"`
	Seeds *Interval    `json:"interval_over_seeds"`
	Curve []CurvePoint `json:"curve"` // mean over the seeds that have the step
	runs  []*record.StudyRun
}

// CurvePoint is a mean over seeds.
type CurvePoint struct {
	Step  int     `json:"step"`
	Value float64 `json:"value"`
}

// RunResult is what a run says.
type RunResult struct {
	Seed     uint64       `json:"seed"`
	Run      string       `json:"run"`
	Value    *float64     `json:"value"` // at the end
	Curve    []CurvePoint `json:"curve"`
	Collapse []Collapse   `json:"collapse"`
	Failure  string       `json:"failure,omitempty"`
}

// Difference is that of two arms, paired by seed and problem.
type Difference struct {
	Comparison
	Seeds   []SeedDifference `json:"seeds"` // that both arms have
	Missing int              `json:"missing"`
	Pairs   int              `json:"pairs"`
	Better  int              `json:"better"` // pairs in which A is better
	Worse   int              `json:"worse"`
	Value   *float64         `json:"value"`
	// Range holds OverProblems and OverSeeds, and decides about a gate.
	Range        *Interval `json:"interval"`
	OverProblems *Interval `json:"interval_over_problems"`
	OverSeeds    *Interval `json:"interval_over_seeds"`
	Passed       *bool     `json:"passed"` // nil: no gate
	Note         string    `json:"note,omitempty"`
}

// SeedDifference is the difference with one seed.
type SeedDifference struct {
	Seed  uint64  `json:"seed"`
	Value float64 `json:"value"`
}

// Analyse says what the runs of a plan say. runs may lack some, and may be in any order.
func Analyse(p Plan, runs []record.StudyRun) *Result {
	r := &Result{Plan: p, All: len(p.Arms) * len(p.Seeds)}
	for _, a := range p.Arms {
		res := ArmResult{Arm: a, runs: make([]*record.StudyRun, len(p.Seeds))}
		for i, seed := range p.Seeds {
			at := slices.IndexFunc(runs, func(x record.StudyRun) bool { return x.Arm == a.Name && x.Seed == seed })
			run := RunResult{Seed: seed, Curve: []CurvePoint{}, Collapse: []Collapse{}}
			if at < 0 {
				run.Failure = "not run"
				res.Runs = append(res.Runs, run)
				continue
			}
			copied := runs[at]
			x := &copied
			run.Run, run.Failure = x.Run, x.Failure
			for _, pt := range x.Points {
				run.Curve = append(run.Curve, CurvePoint{pt.Step, value(pt, p.Metric)})
			}
			run.Collapse = append(run.Collapse, collapseOf(x, p.Metric, p.Limits)...)
			if x.Failure == "" && len(x.Items) > 0 {
				v := itemsOf(x, p.Metric).mean()
				run.Value = &v
				res.runs[i] = x
				r.Done++
			}
			res.Runs = append(res.Runs, run)
		}
		res.sum(p.Metric)
		r.Arms = append(r.Arms, res)
	}
	for _, c := range p.Comparisons {
		d := r.difference(c)
		if d.Passed != nil {
			all := (r.Passed == nil || *r.Passed) && *d.Passed
			r.Passed = &all
		}
		r.Differences = append(r.Differences, d)
	}
	return r
}

// itemsOf returns the numbers of the last validation, by problem.
func itemsOf(r *record.StudyRun, metric string) sample {
	var s sample
	for _, it := range r.Items {
		v := 0.0
		if it.Total > 0 {
			v = float64(it.Passed) / float64(it.Total)
		}
		if metric != "pass_rate" && v < 1 {
			v = 0
		}
		s.ids, s.values = append(s.ids, it.Problem), append(s.values, v)
	}
	return s
}

func (a *ArmResult) sum(metric string) {
	var seeds []sample
	var means, starts []float64
	for _, r := range a.runs {
		if r == nil {
			continue
		}
		s := itemsOf(r, metric)
		seeds, means = append(seeds, s), append(means, s.mean())
		starts = append(starts, value(r.Points[0], metric))
	}
	a.Curve = curve(a.Runs)
	if len(seeds) == 0 {
		return
	}
	v, start, pro := average(means), average(starts), share(seeds)
	a.Value, a.Start, a.Pro, a.Range = &v, &start, &pro, &pro
	if i, ok := overSeeds(means, 0, 1); ok {
		wide := both(pro, i)
		a.Seeds, a.Range = &i, &wide
	}
}

// curve is the mean over runs at each step that all runs with points have.
func curve(runs []RunResult) []CurvePoint {
	sums, counts, most := map[int]float64{}, map[int]int{}, 0
	var steps []int
	for _, r := range runs {
		if len(r.Curve) > 0 {
			most++
		}
		for _, p := range r.Curve {
			if counts[p.Step] == 0 {
				steps = append(steps, p.Step)
			}
			sums[p.Step] += p.Value
			counts[p.Step]++
		}
	}
	slices.Sort(steps)
	out := []CurvePoint{}
	for _, s := range steps {
		if counts[s] == most {
			out = append(out, CurvePoint{s, sums[s] / float64(most)})
		}
	}
	return out
}

func (r *Result) arm(name string) *ArmResult {
	for i := range r.Arms {
		if r.Arms[i].Arm.Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

// difference pairs the runs of two arms by seed, and their last validations by problem.
func (r *Result) difference(c Comparison) Difference {
	d := Difference{Comparison: c, Seeds: []SeedDifference{}}
	a, b := r.arm(c.A), r.arm(c.B)
	var seeds []sample
	var means []float64
	for i, seed := range r.Plan.Seeds {
		if a == nil || b == nil || a.runs[i] == nil || b.runs[i] == nil {
			d.Missing++
			continue
		}
		x, y := itemsOf(a.runs[i], r.Plan.Metric), itemsOf(b.runs[i], r.Plan.Metric)
		if !slices.Equal(x.ids, y.ids) {
			d.Missing++
			d.Note = fmt.Sprintf("with seed %d the two arms have other dev problems", seed)
			continue
		}
		s := sample{ids: x.ids}
		for k := range x.values {
			v := x.values[k] - y.values[k]
			s.values = append(s.values, v)
			d.Pairs++
			switch {
			case v > 0:
				d.Better++
			case v < 0:
				d.Worse++
			}
		}
		seeds, means = append(seeds, s), append(means, s.mean())
		d.Seeds = append(d.Seeds, SeedDifference{seed, s.mean()})
	}
	if len(seeds) > 0 {
		v, pro := average(means), overProblems(seeds)
		d.Value, d.OverProblems, d.Range = &v, &pro, &pro
		if i, ok := overSeeds(means, -1, 1); ok {
			wide := both(pro, i)
			d.OverSeeds, d.Range = &i, &wide
		}
	}
	if c.Gate {
		// A run without a result is no reason to believe that the difference is there.
		ok := d.Missing == 0 && d.OverSeeds != nil && d.Range.Low > 0
		d.Passed = &ok
	}
	return d
}
