package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/internal/fault"
)

// mostCases bounds a sweep, and mostTogether the steps of all its cases.
const mostCases = 256

type simulateCmd struct {
	configFlags
	Steps             int      `help:"Training steps; 0 for run.steps of the configuration." default:"0"`
	RolloutWorkers    int      `help:"Rollout processes, one for each GPU that generates." default:"8"`
	Slots             int      `help:"Responses that a rollout worker generates at once; 0 for engine.max_sequences." default:"0"`
	TokensPerSecond   string   `help:"Tokens a second of one response: a number, or a curve over the responses at once, such as 1:60,16:40,64:18." default:"40" placeholder:"RATE"`
	UpdateSeconds     float64  `help:"Time of one update." default:"20"`
	Lengths           string   `help:"Response lengths in tokens: lognormal:mean=2500,sigma=1.0 (problem=0.3: share of the spread that a problem's responses have in common), pareto:mean=2500,shape=1.5 or fixed:mean=2500; max=N cuts, default rollout.max_response." default:"lognormal:mean=2500,sigma=1.0" sep:"none" placeholder:"DIST"`
	JudgeSeconds      float64  `help:"Time to judge one group." default:"5"`
	CheckpointSeconds float64  `help:"Time of one checkpoint." default:"5"`
	SwapSeconds       float64  `help:"Time for which a rollout worker stops to load a version." default:"0"`
	RestartSeconds    float64  `help:"Time until a process that died is back." default:"30"`
	HopMilliseconds   float64  `help:"Time of each message of the Temporal server. With the default the orchestration costs what was measured (docs/benchmarks/demo.md)." default:"10"`
	Failures          float64  `help:"Probability that a rollout worker dies during an attempt at a group, and of a judge fault for a group; a trainer dies in an update with a tenth of it." default:"0.01"`
	Seed              uint64   `help:"Seed of lengths and failures." default:"42"`
	Sweep             []string `help:"Simulate for each value: prefill, threshold, policy, workers, slots, batch, group, update or failures, for example --sweep threshold=2,4,8; may be repeated for all combinations." sep:"none" placeholder:"KEY=V,V"`
	JSON              bool     `help:"Print JSON."`
	HTML              string   `help:"Also write a page with tables and curves." type:"path" placeholder:"FILE"`
}

// Help is the long text of --help.
func (simulateCmd) Help() string {
	return `Plan a run before renting machines: the workflows of a real run are driven in virtual time, with a model of rollout
workers, trainer, judges and failures. Batch, group, prefill, threshold, mode and intervals come from the configuration
(default recipe: sc-taco). The same command prints the same bytes.

  steady simulate --steps 300
  steady simulate --steps 300 --sweep workers=2,4,8,16 --html plan.html
  steady simulate --recipe sc-taco-1gpu --rollout-workers 1 --tokens-per-second 1:60,16:40,64:18 --update-seconds 90

docs/planning.md says what the model contains and what it leaves out.

Reads: the files of -f. Writes: the page of --html, else nothing but its output.

Exit status: 0 done, 1 a case does not end or breaks its own books, 2 usage or configuration, 4 interrupted.`
}

// sweepKeys are what --sweep may name: a configuration key, or a flag.
var sweepKeys = map[string]string{
	"prefill": "rollout.prefill", "threshold": "rollout.staleness_threshold", "batch": "rollout.batch_problems", "group": "rollout.group_size",
	"policy":  "rollout.staleness_policy",
	"workers": "", "slots": "", "update": "", "failures": "",
}

// Run simulates and prints.
func (c *simulateCmd) Run(ctx context.Context, s *streams) error {
	cases, err := c.cases()
	if err != nil {
		return err
	}
	var page *os.File
	if c.HTML != "" { // before the time is spent
		if page, err = os.OpenFile(c.HTML, os.O_WRONLY|os.O_CREATE, 0o644); err != nil { //nolint:gosec // a page is for everybody
			return fault.New(fault.Invalid, "", "--html: %w", err).WithHint("name a file that can be written")
		}
		defer page.Close() //nolint:errcheck // closed below; this is for the returns before
	}
	if err := c.simulate(ctx, s, cases); err != nil {
		return err
	}
	if page != nil {
		if err := c.write(page, cases); err != nil {
			return err
		}
	}
	text := []byte(simulate.Text(cases))
	if c.JSON {
		if text, err = json.MarshalIndent(map[string]any{"cases": cases}, "", "  "); err != nil {
			return fault.New(fault.Internal, "steady simulate", "%w", err)
		}
		text = append(text, '\n')
	}
	_, err = s.out.Write(text)
	return err
}

// write replaces the page.
func (c *simulateCmd) write(page *os.File, cases []simulate.Case) error {
	if err := page.Truncate(0); err != nil {
		return fault.New(fault.Invalid, "", "--html: %w", err).WithHint("name a file that can be written")
	}
	if err := simulate.WritePage(page, "steady simulate "+c.words(), cases); err != nil {
		return err
	}
	if err := page.Close(); err != nil {
		return fault.New(fault.Busy, "", "--html: %w", err)
	}
	return nil
}

// words are the flags that decide, for the page.
func (c *simulateCmd) words() string {
	parts := []string{}
	add := func(name string, values ...string) {
		for _, v := range values {
			parts = append(parts, name+" "+v)
		}
	}
	if c.Recipe != "" {
		add("--recipe", c.Recipe)
	}
	add("-f", c.File...)
	add("--set", c.Set...)
	add("--steps", fmt.Sprint(c.Steps))
	add("--rollout-workers", fmt.Sprint(c.RolloutWorkers))
	add("--slots", fmt.Sprint(c.Slots))
	add("--tokens-per-second", c.TokensPerSecond)
	add("--update-seconds", fmt.Sprint(c.UpdateSeconds))
	add("--lengths", c.Lengths)
	add("--failures", fmt.Sprint(c.Failures))
	add("--seed", fmt.Sprint(c.Seed))
	add("--sweep", c.Sweep...)
	return strings.Join(parts, " ")
}

// simulate runs the cases, as many at once as there are cores, and says now and then how far it is.
func (c *simulateCmd) simulate(ctx context.Context, s *streams, cases []simulate.Case) error {
	debug.SetGCPercent(400)             // most of the garbage is that of one workflow task
	g, ctx := errgroup.WithContext(ctx) // the first error ends the others
	g.SetLimit(runtime.GOMAXPROCS(0))
	began := time.Now()
	for i := range cases {
		g.Go(func() error {
			all := cases[i].Options.Spec.Steps
			next := all / 10
			var err error
			cases[i].Result, err = simulate.Run(ctx, cases[i].Options, func(step int) {
				if len(cases) == 1 && step >= next && step < all {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					fmt.Fprintf(s.err, "step %d of %d, %.0f s, heap in use %d MB\n", step, all, time.Since(began).Seconds(), m.HeapInuse>>20)
					next += max(1, all/10)
				}
			})
			if err != nil && len(cases) > 1 {
				return fmt.Errorf("with %s: %w", settingsText(cases[i].Settings), err)
			}
			return err
		})
	}
	return g.Wait()
}

// cases are all combinations of the swept values.
func (c *simulateCmd) cases() ([]simulate.Case, error) {
	combinations := [][]simulate.Setting{nil}
	var names []string
	for _, text := range c.Sweep {
		name, list, ok := strings.Cut(text, "=")
		values := strings.Split(list, ",")
		_, known := sweepKeys[name]
		if !ok || !known || slices.Contains(names, name) || list == "" {
			return nil, fault.New(fault.Invalid, "", "--sweep %s: want a key that stands once, and its values", text).
				WithHint("for example --sweep threshold=2,4,8; keys: batch, failures, group, policy, prefill, slots, threshold, update, workers")
		}
		names = append(names, name)
		var next [][]simulate.Setting
		for _, before := range combinations {
			for _, v := range values {
				next = append(next, append(slices.Clone(before), simulate.Setting{Name: name, Value: strings.TrimSpace(v)}))
			}
		}
		if combinations = next; len(combinations) > mostCases {
			return nil, fault.New(fault.Invalid, "", "--sweep: more than %d combinations", mostCases).WithHint("sweep fewer values at once")
		}
	}
	out := make([]simulate.Case, len(combinations))
	for i, settings := range combinations {
		o, err := c.options(settings)
		if err != nil {
			if len(settings) > 0 {
				return nil, fmt.Errorf("with %s: %w", settingsText(settings), err)
			}
			return nil, err
		}
		out[i] = simulate.Case{Settings: settings, Options: o}
	}
	return out, nil
}

func settingsText(settings []simulate.Setting) string {
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = s.Name + "=" + s.Value
	}
	return strings.Join(parts, ", ")
}

// options are those of one case.
func (c *simulateCmd) options(settings []simulate.Setting) (simulate.Options, error) {
	f, own := c.configFlags, *c
	f.Set = slices.Clone(f.Set)
	if c.Steps != 0 {
		f.Set = append(f.Set, fmt.Sprintf("run.steps=%d", c.Steps))
	}
	for _, s := range settings {
		if key := sweepKeys[s.Name]; key != "" {
			f.Set = append(f.Set, key+"="+s.Value)
			continue
		}
		to := map[string]any{"workers": &own.RolloutWorkers, "slots": &own.Slots, "update": &own.UpdateSeconds, "failures": &own.Failures}[s.Name]
		if err := json.Unmarshal([]byte(s.Value), to); err != nil || s.Value == "null" {
			return simulate.Options{}, fault.New(fault.Invalid, "", "%q is no number that %s can have", s.Value, s.Name).
				WithHint("for example --sweep %s=2,4,8", s.Name)
		}
	}
	recipe := "sc-taco"
	if len(f.File) > 0 {
		recipe = ""
	}
	cfg, sources, err := f.load(recipe)
	if err != nil {
		return simulate.Options{}, err
	}
	if _, err := cfg.Examine(sources); err != nil { // what only keeps this machine from running it does not matter here
		return simulate.Options{}, err
	}
	if cfg.Run.InitRun != "" {
		return simulate.Options{}, fault.New(fault.Invalid, "", "run.init_run is %q: a simulation starts from the base model", cfg.Run.InitRun).
			WithHint("leave run.init_run out, and give the steps that are left with --steps")
	}
	lengths, err := simulate.ParseLengths(own.Lengths)
	if err != nil {
		return simulate.Options{}, err
	}
	if lengths.Max == 0 {
		lengths.Max = cfg.Rollout.MaxResponse
	}
	rate, err := simulate.ParseRate(own.TokensPerSecond)
	if err != nil {
		return simulate.Options{}, err
	}
	if own.Slots == 0 {
		own.Slots = cfg.Engine.MaxSequences
	}
	o := simulate.Options{
		TrainProblems: cfg.Data.Train, DevProblems: cfg.Data.Dev, Workers: own.RolloutWorkers, Slots: own.Slots, Rate: rate, Lengths: lengths,
		Flush: cfg.Rollout.FlushInterval.Std(), Failures: own.Failures, Seed: own.Seed,
	}
	if err := o.SetTimes(map[string]float64{
		"--update-seconds": own.UpdateSeconds, "--checkpoint-seconds": own.CheckpointSeconds, "--judge-seconds": own.JudgeSeconds,
		"--swap-seconds": own.SwapSeconds, "--restart-seconds": own.RestartSeconds, "--hop-milliseconds": own.HopMilliseconds,
	}); err != nil {
		return simulate.Options{}, err
	}
	activities.PlanOf(cfg, &o.Spec)
	o.Spec.SearchAttributes = true // they cost events
	return o, o.Check()
}
