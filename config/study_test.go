package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/fault"
)

func TestStudies_allLoadAndAreValid(t *testing.T) {
	t.Parallel()
	list := config.Studies()
	if len(list) < 2 {
		t.Fatalf("only %d studies", len(list))
	}
	for _, x := range list {
		s, err := config.LoadStudy(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != x.Name || s.About == "" {
			t.Errorf("the file of %s holds %q, %q", x.Name, s.Name, s.About)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		q, err := s.QuickForm()
		if err != nil {
			t.Errorf("%s has no quick form: %v", x.Name, err)
			continue
		}
		if err := q.Validate(); err != nil {
			t.Errorf("quick form of %s: %v", x.Name, err)
		}
		for _, form := range []*config.Study{s, q} {
			text, err := form.JSON()
			if err != nil {
				t.Fatal(err)
			}
			back, err := config.DecodeStudy(text)
			if err != nil {
				t.Errorf("%s is no input of a workflow: %v", form.Name, err)
				continue
			}
			again, err := back.JSON()
			if err != nil || string(again) != string(text) {
				t.Errorf("%s comes back as another study: %v\n%s", form.Name, err, cmp.Diff(string(text), string(again)))
			}
		}
	}
}

const goodStudy = `
name: s
recipe: demo
set: [mode=sync]
seeds: [1, 2]
arms:
  - {name: a, set: [rollout.lag=1]}
  - {name: b, set: [rollout.lag=2], label: B, panel: p}
comparisons:
  - {a: a, b: b, gate: true}
`

func loadText(t *testing.T, text string) (*config.Study, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.LoadStudy(name)
}

func TestStudy_runsAreArmsTimesSeeds(t *testing.T) {
	t.Parallel()
	s, err := loadText(t, goodStudy)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("%s: mode %s, seed %d, lag %d, batch %d", r.Name, r.Config.Mode, r.Config.Run.Seed, r.Config.Rollout.Lag, r.Config.Rollout.BatchProblems))
	}
	want := []string{
		"s.a.s1: mode sync, seed 1, lag 1, batch 12", "s.b.s1: mode sync, seed 1, lag 2, batch 12",
		"s.a.s2: mode sync, seed 2, lag 1, batch 12", "s.b.s2: mode sync, seed 2, lag 2, batch 12",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := s.RunName("a", 1, 3); got != "s.a.s1-3" {
		t.Errorf("the third attempt is called %s", got)
	}
}

// Every rule, broken in an otherwise good study.
func TestStudy_whatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ old, with, want string }{
		"an unknown key":                  {"name: s", "name: s\nseed: 3", "seed: unknown key, did you mean seeds?"},
		"an unknown key of an arm":        {"name: a,", "name: a, lag: 3,", "arms[0].lag: unknown key"},
		"a text for a list":               {"seeds: [1, 2]", "seeds: 1", "seeds: want a list"},
		"a negative seed":                 {"[1, 2]", "[1, -2]", "seeds[1]: want a whole number that is not negative"},
		"a name that is no name":          {"name: s", "name: a/b", "name: must be a name"},
		"no arms":                         {"arms:\n  - {name: a, set: [rollout.lag=1]}\n  - {name: b, set: [rollout.lag=2], label: B, panel: p}", "arms: []", "arms: must list at least one arm"},
		"no seeds":                        {"[1, 2]", "[]", "seeds: must list at least one seed"},
		"a seed twice":                    {"[1, 2]", "[1, 1]", "seeds[1]: must differ"},
		"an arm twice":                    {"name: b,", "name: a,", "arms[1].name: must differ"},
		"an arm's name with a slash":      {"name: b,", "name: b/c,", "arms[1].name: must be a name"},
		"a name that gets too long":       {"name: b,", "name: b" + strings.Repeat("x", 97) + ",", "arms[1].name: makes a name of a run that is too long"},
		"a metric that is none":           {"name: s", "name: s\nmetric: reward", "metric: must be one of acc, pass_rate"},
		"none at once":                    {"name: s", "name: s\nparallel: 0", "parallel: must be at least 1"},
		"a comparison with a stranger":    {"b: b,", "b: c,", "comparisons[0].b: must be the name of an arm, got c"},
		"a comparison with itself":        {"b: b,", "b: a,", "comparisons[0]: must name two arms"},
		"a gate from one seed":            {"[1, 2]", "[1]", "comparisons[0].gate: needs at least 2 seeds"},
		"an assignment without a value":   {"mode=sync]", "mode]", "set[0]: must be an assignment"},
		"a seed by assignment":            {"mode=sync]", "mode=sync, run.seed=3]", "set[1]: must not set run.seed"},
		"a recipe by assignment":          {"rollout.lag=1]", "recipe=demo]", "arms[0].set[0]: must not set recipe"},
		"an arm's unknown key":            {"rollout.lag=1]", "rollout.leg=1]", "arm a: rollout.leg: unknown key, did you mean lag?"},
		"an arm's bad value":              {"rollout.lag=1]", "rollout.lag=4]", "arm a: rollout.lag: must be smaller than rollout.staleness_threshold (4)"},
		"a lag in mode async":             {"mode=sync]", "mode=async]", "arm a: rollout.lag: must be 0 in mode async"},
		"a precision of another engine":   {"rollout.lag=1]", "rollout.precision=int8, engine.backend=ref]", "arm a: rollout.precision: must be fp32 for engine.backend ref"},
		"another budget":                  {"rollout.lag=2]", "rollout.group_size=8]", "arm b: run.steps x rollout.batch_problems x rollout.group_size: must be as in arm a, for a matched budget: 2016 trajectories there, 4032 here"},
		"other dev problems":              {"rollout.lag=2]", "data.dev=32]", "arm b: data.*, which chooses the dev problems: must be as in arm a"},
		"another temperature of the dev":  {"rollout.lag=2]", "validation.temperature=1]", "arm b: validation.*: must be as in arm a"},
		"a collapse share of one":         {"name: s", "name: s\ncollapse: {share: 1}", "collapse.share: must be at least 0 and less than 1"},
		"a gradient that shrinks":         {"name: s", "name: s\ncollapse: {grad_norm: 0.5}", "collapse.grad_norm: must be 0 or greater than 1"},
		"an unknown recipe":               {"recipe: demo", "recipe: dema", "arm a: recipe: want one of demo"},
		"more runs than a workflow bears": {"[1, 2]", "[" + numbers(101) + "]", "arms: times seeds must be at most 200 runs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Count(goodStudy, tt.old) == 0 {
				t.Fatalf("the good study has no %q", tt.old)
			}
			s, err := loadText(t, strings.Replace(goodStudy, tt.old, tt.with, 1))
			if err == nil {
				err = s.Validate()
			}
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want Invalid with %q", err, tt.want)
			}
			if fault.HintOf(err) == "" {
				t.Error("the error says nothing to do")
			}
		})
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d, ", i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// A group of twice the size with half of the problems is as much to train.
func TestStudy_groupSizesWithOneBudgetAreMatched(t *testing.T) {
	t.Parallel()
	s, err := loadText(t, strings.Replace(goodStudy, "rollout.lag=2]", "rollout.group_size=8, rollout.batch_problems=6]", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStudy_quickFormTakesItsParts(t *testing.T) {
	t.Parallel()
	s, err := loadText(t, goodStudy+"quick: {set: [run.steps=3], arms: [b], seeds: [9]}\n")
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.QuickForm()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := q.Runs()
	if err != nil || len(runs) != 1 || runs[0].Name != "s-quick.b.s9" || runs[0].Config.Run.Steps != 3 || len(q.Comparisons) != 0 {
		t.Errorf("got %+v, %v", runs, err)
	}
	if len(s.Arms) != 2 || len(s.Set) != 1 {
		t.Errorf("the study itself has changed: %+v", s)
	}
	for text, want := range map[string]string{"": "has no quick form", "quick: {arms: [c]}\n": `has no arm "c"`} {
		s, err := loadText(t, goodStudy+text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.QuickForm(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want Invalid with %q", text, err, want)
		}
	}
}

func TestDecodeStudy_refusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                 "not JSON",
		"{":                "not JSON",
		"[]":               "want the keys of a study, got a list",
		`{"name": null}`:   "name: want text, got nothing",
		`{"seeds": "all"}`: "seeds: want a list",
	} {
		if _, err := config.DecodeStudy([]byte(text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want Invalid with %q", text, err, want)
		}
	}
	if _, err := config.LoadStudy("no-such-study"); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "study-staleness") {
		t.Errorf("got %v, want NotFound with the names that there are", err)
	}
}

// A lag below the threshold is accepted, one that the threshold or the server could not bear is not; only the engine cpu has other precisions.
func TestValidate_lagAndPrecision(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sets []string
		want string // "" for accepted
	}{
		"the largest lag":           {[]string{"mode=sync", "rollout.lag=3"}, ""},
		"a lag that is too large":   {[]string{"mode=sync", "rollout.lag=4"}, "rollout.lag: must be smaller than rollout.staleness_threshold (4)"},
		"no lag, threshold of one":  {[]string{"mode=sync", "rollout.staleness_threshold=1"}, ""},
		"as many groups as allowed": {[]string{"mode=sync", "rollout.lag=99", "rollout.staleness_threshold=100", "rollout.batch_problems=10"}, ""},
		"more groups than allowed":  {[]string{"mode=sync", "rollout.lag=99", "rollout.staleness_threshold=100"}, "rollout.batch_problems: times (rollout.lag + 1) must be at most 1000 groups in flight, they are 1200"},
		"bf16":                      {[]string{"rollout.precision=bf16"}, ""},
		"int8":                      {[]string{"rollout.precision=int8"}, ""},
		"bf16 with the oracle":      {[]string{"rollout.precision=bf16", "engine.backend=ref"}, "rollout.precision: must be fp32 for engine.backend ref: only the engine cpu has others"},
		"int8 on a GPU":             {[]string{"rollout.precision=int8", "engine.backend=cuda"}, "rollout.precision: must be fp32 for engine.backend cuda"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, sources, err := config.Load(config.Options{Recipe: "demo", Sets: tt.sets})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Validate(sources)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
