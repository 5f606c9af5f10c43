package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/study"
)

// openStudy checks a study, keeps its definition, and says which of its runs have a result.
func (c *Control) openStudy(ctx context.Context, q contract.OpenStudyRequest, _ *Beat) (contract.StudySpec, error) {
	if len(q.Input) == 0 || string(q.Input) == "null" {
		return contract.StudySpec{}, fault.New(fault.Invalid, "OpenStudy", "the workflow has no input").
			WithHint("`steady study show study-staleness --json > study.json`, then start with --input-file study.json")
	}
	def, err := config.DecodeStudy(q.Input)
	if err != nil {
		return contract.StudySpec{}, err
	}
	if !config.ValidRunName(q.Study) {
		return contract.StudySpec{}, fault.New(fault.Invalid, "OpenStudy", "the workflow id %q is not the name of a study", q.Study).
			WithHint("use letters, digits, '.', '_' and '-', beginning with a letter or digit")
	}
	def.Name = q.Study
	runs, err := def.Runs()
	if err != nil {
		return contract.StudySpec{}, err
	}
	for _, r := range runs {
		if err := c.Runs.serves(r.Name, r.Config); err != nil {
			return contract.StudySpec{}, err
		}
	}
	if err := c.ownStudy(ctx, def); err != nil {
		return contract.StudySpec{}, err
	}
	spec := contract.StudySpec{Title: def.About, Seeds: def.Seeds, Parallel: def.Parallel}
	for _, a := range def.Arms {
		spec.Arms = append(spec.Arms, a.Name)
	}
	for i, seed := range def.Seeds {
		for k, a := range def.Arms {
			r, err := studyRun(ctx, c.store(), q.Study, a.Name, seed)
			if err != nil {
				return contract.StudySpec{}, err
			}
			if settled(r) {
				spec.Done = append(spec.Done, i*len(def.Arms)+k)
			}
		}
	}
	return spec, nil
}

// ownStudy writes the record of the study, or checks that it is of the same definition.
func (c *Control) ownStudy(ctx context.Context, def *config.Study) error {
	same := *def
	same.Parallel = 1 // changes no result
	text, err := same.JSON()
	if err != nil {
		return err
	}
	l := record.StudyLayout{Study: def.Name}
	var old record.Study
	_, err = artifact.GetJSON(ctx, c.store(), l.File(), &old)
	if fault.Is(err, fault.NotFound) {
		_, err = artifact.PutJSON(ctx, c.store(), l.File(), record.Study{
			Study: def.Name, Definition: string(text), Steady: c.Version, Started: time.Now().UTC().Format(time.RFC3339),
		})
		return err
	}
	if err != nil {
		return err
	}
	if old.Definition != string(text) {
		return fault.New(fault.Invalid, "OpenStudy", "study %q exists in the artifact store with another definition, started %s", def.Name, old.Started).
			WithHint("start it under another name, or with the definition that it had: `steady study show --of %s`", def.Name)
	}
	return nil
}

// studyRun reads the record of a run of a study; nil if there is none.
func studyRun(ctx context.Context, s artifact.Store, id, arm string, seed uint64) (*record.StudyRun, error) {
	var r record.StudyRun
	_, err := artifact.GetJSON(ctx, s, record.StudyLayout{Study: id}.Run(arm, seed), &r)
	if fault.Is(err, fault.NotFound) {
		return nil, nil //nolint:nilnil // no record is an answer
	}
	return &r, err
}

// settled reports whether a run need not be made again: it has a result, or it failed in a way that it would fail in again.
func settled(r *record.StudyRun) bool {
	return r != nil && (r.Failure == "" || r.Kind == string(fault.Numeric))
}

// Study reads the definition of a study in the store. Errors: NotFound, Corrupt, and those of the store.
func Study(ctx context.Context, s artifact.Store, id string) (*config.Study, error) {
	var r record.Study
	if _, err := artifact.GetJSON(ctx, s, record.StudyLayout{Study: id}.File(), &r); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil, fault.New(fault.NotFound, "activities.Study", "there is no study %q in the artifact store", id).
				WithHint("name a study that was started here; `ls STORE/studies` lists them")
		}
		return nil, err
	}
	return config.DecodeStudy([]byte(r.Definition))
}

// prepareStudyRun names the run of an arm and a seed. A run that an earlier execution of the study left unfinished keeps its name and its files,
// and the next attempt gets another.
func (c *Control) prepareStudyRun(ctx context.Context, q contract.StudyRunRequest, _ *Beat) (contract.PreparedRun, error) {
	def, err := Study(ctx, c.store(), q.Study)
	if err != nil {
		return contract.PreparedRun{}, err
	}
	cfg, err := studyConfig(def, q.Arm, q.Seed)
	if err != nil {
		return contract.PreparedRun{}, err
	}
	text, err := cfg.JSON()
	if err != nil {
		return contract.PreparedRun{}, err
	}
	for attempt := 1; ; attempt++ {
		name := def.RunName(q.Arm, q.Seed, attempt)
		if !config.ValidRunName(name) {
			return contract.PreparedRun{}, fault.New(fault.Invalid, "PrepareStudyRun", "no name is left for the run of %s with seed %d", q.Arm, q.Seed)
		}
		var run record.Run
		_, err := artifact.GetJSON(ctx, c.store(), record.Layout{Run: name, Lineage: record.FirstLineage}.RunFile(), &run)
		if fault.Is(err, fault.NotFound) {
			return contract.PreparedRun{Run: name, Input: text}, nil
		}
		if err != nil {
			return contract.PreparedRun{}, err
		}
		if run.ConfigDigest != artifact.Digest(text) {
			continue
		}
		l, err := record.Newest(ctx, c.store(), name)
		if err != nil {
			return contract.PreparedRun{}, err
		}
		done, err := c.store().Exists(ctx, l.Validation(record.StepName(cfg.Run.Steps)))
		if err != nil {
			return contract.PreparedRun{}, err
		}
		if done {
			return contract.PreparedRun{Run: name, Finished: true}, nil
		}
	}
}

func studyConfig(def *config.Study, arm string, seed uint64) (*config.Config, error) {
	runs, err := def.Runs()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(runs, func(r config.StudyRun) bool { return r.Arm == arm && r.Seed == seed })
	if i < 0 {
		return nil, fault.New(fault.Invalid, "activities.Study", "the study %s has no arm %q with seed %d", def.Name, arm, seed)
	}
	return runs[i].Config, nil
}

// collectStudyRun keeps what the study needs of a run, so that the run itself may be removed.
func (c *Control) collectStudyRun(ctx context.Context, q contract.CollectStudyRunRequest, _ *Beat) (contract.CollectedRun, error) {
	def, err := Study(ctx, c.store(), q.Study)
	if err != nil {
		return contract.CollectedRun{}, err
	}
	old, err := studyRun(ctx, c.store(), q.Study, q.Arm, q.Seed)
	if err != nil {
		return contract.CollectedRun{}, err
	}
	if settled(old) {
		return collected(old, def.Metric), nil
	}
	cfg, err := studyConfig(def, q.Arm, q.Seed)
	if err != nil {
		return contract.CollectedRun{}, err
	}
	r := record.StudyRun{Arm: q.Arm, Seed: q.Seed, Run: q.Run, Kind: q.Kind, Failure: q.Failure}
	if err := gather(ctx, c.store(), cfg, &r); err != nil {
		return contract.CollectedRun{}, err
	}
	if n := len(r.Points); r.Failure == "" && (n == 0 || r.Points[n-1].Step != cfg.Run.Steps) {
		r.Kind, r.Failure = string(fault.Invalid), fmt.Sprintf("the run ended before its last step, %d", cfg.Run.Steps)
	}
	if r.Failure != "" {
		r.Items = nil
	}
	if err := record.CheckFinite(r); err != nil {
		return contract.CollectedRun{}, err
	}
	if _, err := artifact.ReplaceJSON(ctx, c.store(), record.StudyLayout{Study: q.Study}.Run(q.Arm, q.Seed), r); err != nil {
		return contract.CollectedRun{}, err
	}
	return collected(&r, def.Metric), nil
}

func collected(r *record.StudyRun, metric string) contract.CollectedRun {
	out := contract.CollectedRun{Failure: r.Failure}
	if n := len(r.Points); r.Failure == "" && n > 0 {
		v := r.Points[n-1].Acc
		if metric == config.MetricPassRate {
			v = r.Points[n-1].PassRate
		}
		out.Value = &v
	}
	return out
}

// gather reads validations and steps of a run, of whichever lineage made them. What a run that failed early lacks is left out.
func gather(ctx context.Context, s artifact.Store, cfg *config.Config, r *record.StudyRun) error {
	all, err := record.Lineages(ctx, s, r.Run)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.ConfigDigest = all[0].ConfigDigest
	var trail record.Trail
	var of record.Layout // the lineage of trail
	for step := 0; step <= cfg.Run.Steps; step++ {
		l := lineageOf(all, r.Run, step)
		if step%cfg.Run.ValidateEvery == 0 || step == cfg.Run.Steps {
			var v record.Validation
			_, err := artifact.GetJSON(ctx, s, l.Validation(record.StepName(step)), &v)
			switch {
			case err == nil:
				r.Points = append(r.Points, record.StudyPoint{
					Step: step, Problems: v.Problems, Solved: v.Metrics.Solved, Acc: v.Metrics.Acc, PassRate: v.Metrics.PassRate,
					FormatOK: v.Metrics.FormatOK, Tokens: v.Metrics.MeanTokens,
				})
				r.Items = v.Items
			case !fault.Is(err, fault.NotFound):
				return err
			}
		}
		if step == 0 {
			continue
		}
		var batch record.Sealed
		var res record.Result
		ref, err := artifact.GetJSON(ctx, s, l.Batch(step), &batch)
		if fault.Is(err, fault.NotFound) {
			continue
		} else if err != nil {
			return err
		}
		if l != of {
			trail, of = record.Trail{}, l
		}
		trail.Batch(step, ref)
		if ref, seal, err := artifact.GetSealed(ctx, s, l.Result(step), &res); err == nil {
			if err := trail.Result(ref.Name, step, res, seal); err != nil {
				return err
			}
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
		b, m := batch.Rollout, res.Metrics
		r.StateDigest = res.StateDigest
		r.Steps = append(r.Steps, record.StudyStep{
			Step: step, Reward: b.RewardMean, GradNorm: m.GradNorm, Tokens: b.ResponseTokens, NoAnswer: b.UnjudgeableRate, LagMean: b.LagMean,
			LogProbGap: m.LogProbGap, Correction: m.Correction,
		})
	}
	return nil
}

// lineageOf returns the lineage that made a step: the newest one that begins before it.
func lineageOf(all []record.Run, run string, step int) record.Layout {
	i := len(all) - 1
	for i > 0 && all[i].Parent != nil && step <= all[i].Parent.Step {
		parent := all[i].Parent.Lineage
		i = slices.IndexFunc(all, func(r record.Run) bool { return r.Lineage == parent })
	}
	return record.Layout{Run: run, Lineage: record.LineageName(max(i, 0))}
}

// summarizeStudy writes what the recorded runs say.
func (c *Control) summarizeStudy(ctx context.Context, q contract.SummarizeStudyRequest, _ *Beat) (contract.StudyOutput, error) {
	res, err := AnalyseStudy(ctx, c.store(), q.Study)
	if err != nil {
		return contract.StudyOutput{}, err
	}
	l := record.StudyLayout{Study: q.Study}
	out := contract.StudyOutput{Done: res.Done, All: res.All, Passed: res.Passed}
	if _, err := artifact.ReplaceJSON(ctx, c.store(), l.Result(), res); err != nil {
		return out, err
	}
	for _, f := range StudyFiles(res) {
		ref, err := c.store().Replace(ctx, l.Root()+f.Name, f.Data)
		if err != nil {
			return out, err
		}
		if l.Root()+f.Name == l.Page() {
			out.Page = ref
		}
	}
	return out, nil
}

// AnalyseStudy says what the runs of a study that the store has say. Errors: NotFound (no such study), and those of the store.
func AnalyseStudy(ctx context.Context, s artifact.Store, id string) (*study.Result, error) {
	def, err := Study(ctx, s, id)
	if err != nil {
		return nil, err
	}
	p := study.Plan{
		Study: id, About: def.About, Metric: def.Metric, Seeds: def.Seeds,
		Limits: study.Limits(def.Collapse),
	}
	for _, x := range def.Comparisons {
		p.Comparisons = append(p.Comparisons, study.Comparison(x))
	}
	var runs []record.StudyRun
	for _, a := range def.Arms {
		p.Arms = append(p.Arms, study.Arm{Name: a.Name, Label: a.Label, Panel: a.Panel})
		for _, seed := range def.Seeds {
			r, err := studyRun(ctx, s, id, a.Name, seed)
			if err != nil {
				return nil, err
			}
			if r != nil {
				runs = append(runs, *r)
			}
		}
	}
	return study.Analyse(p, runs), nil
}

// StudyFile is a file that a study is written as.
type StudyFile struct {
	Name string
	Data []byte
}

// StudyFiles renders a study: text, picture and tables.
func StudyFiles(r *study.Result) []StudyFile {
	return []StudyFile{
		{"study.md", []byte(r.Page("study.svg"))},
		{"study.svg", []byte(r.Picture())},
		{"study.csv", []byte(r.Curves())},
		{"study-problems.csv", []byte(r.Pairs())},
	}
}
