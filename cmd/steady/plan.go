package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/cmd/steady/internal/forecast"
	"github.com/steadyrl/steady/cmd/steady/internal/simulate"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
	"github.com/steadyrl/steady/workers"
)

type planCmd struct {
	configFlags
	Named        string  `arg:"" optional:"" name:"recipe" help:"Embedded recipe, as --recipe."`
	Model        string  `help:"Model: a directory, or a size of Qwen3 (0.6B, 1.7B, 4B, 8B, 14B). Default: model.path, or the published sizes where that names such a model and is not there." placeholder:"DIR|SIZE"`
	GPU          string  `name:"gpu" help:"Kind of GPU, for example H200, H100, A100-40GB, L40S, RTX-4090." default:"H200" placeholder:"NAME"`
	Memory       float64 `help:"Memory of the GPU in GiB instead of that of --gpu; its speed stays that of --gpu." placeholder:"GIB"`
	GPUs         int     `name:"gpus" help:"GPUs in all: 1 for trainer and sampler on one, else one trains and the others generate. Default: what the recipe says, 1 for mode sync, 2 for async."`
	CacheTokens  int     `help:"As --cache-tokens of a worker: tokens whose keys and values a sampler keeps; 0 for what fits."`
	MeanPrompt   int     `help:"Assumed mean length of prompts, tokens." default:"700"`
	MeanResponse int     `help:"Assumed mean length of responses, tokens; 0 for 2,500, or half of rollout.max_response if that is less."`
	Price        float64 `help:"Price of a GPU-hour, for the cost." placeholder:"MONEY"`
	JSON         bool    `name:"json" help:"Print JSON."`
}

// Help is the long text of --help.
func (planCmd) Help() string {
	return `Says before anything is loaded what a run needs of a GPU (by the arithmetic with which the engine cuda allocates), what
fits on which card, and estimates speed, time, disk and cost. A run that does not fit ends with status 2 and the settings
that make it fit; so does one that this build cannot do.

  steady plan sc-taco-1gpu
  steady plan sc-taco-2gpu --gpu H100 --model 1.7B --price 2.5
  steady plan -f my.yaml --gpu L40S --gpus 4 --json

docs/planning.md says what the numbers are made of.

Reads: the configuration, and of a model directory its config.json. Writes nothing but its output.

Exit status: 0 the run fits and can be done, 2 it does not or cannot, or usage.`
}

// planned is the result, and the JSON of it.
type planned struct {
	Recipe     string       `json:"recipe,omitempty"`
	Model      string       `json:"model"`
	Parameters int          `json:"parameters"`
	Card       plan.Card    `json:"gpu"`
	GPUs       int          `json:"gpus"`
	Shared     bool         `json:"trainer_and_sampler_share"`
	Memory     []planMemory `json:"memory"` // of each GPU that differs
	Cards      []planCard   `json:"cards"`
	Sizes      []planSize   `json:"sizes"`
	NoRates    string       `json:"no_estimate,omitempty"` // why there is none
	Rates      *planRates   `json:"estimate,omitempty"`    // null where the run does not fit
	Disk       planDisk     `json:"disk_bytes"`
	Host       int          `json:"host_bytes"`
	Open       []string     `json:"refused,omitempty"` // why the run cannot be started
	Refusals   []planRefuse `json:"does_not_fit,omitempty"`

	cfg *config.Config
}

// planMemory is the memory of one GPU in bytes.
type planMemory struct {
	Role  string           `json:"role"` // trainer, sampler, or both
	Class []planClass      `json:"classes"`
	Least int              `json:"least_bytes"`
	Fits  bool             `json:"fits"`
	Fill  *plan.Filled     `json:"beyond_the_least,omitempty"`
	Most  *planMost        `json:"largest_that_fits,omitempty"`
	Sides []string         `json:"-"`
	use   plan.Use         `json:"-"`
	by    map[string][]int `json:"-"`
}

type planClass struct {
	Class plan.Class     `json:"class"`
	Bytes map[string]int `json:"bytes"` // by engine
}

// planMost are the largest settings that fit, each with the others as they are; 0: none.
type planMost struct {
	Micro     int `json:"micro_batch_tokens"`
	Longest   int `json:"max_total"`
	Sequences int `json:"max_sequences"`
}

type planCard struct {
	Card    plan.Card `json:"gpu"`
	Trainer bool      `json:"trainer"`
	Sampler bool      `json:"sampler"`
	Both    bool      `json:"both"`
}

// planSize is the least memory of a model of the family with the run's settings, in bytes.
type planSize struct {
	Name    string `json:"name"`
	Trainer int    `json:"trainer"`
	Sampler int    `json:"sampler"`
	Both    int    `json:"both"`
}

// leastForecast is the smallest model of which a speed is estimated: below it, the rates that were measured say nothing.
const leastForecast = 300_000_000

type planRates struct {
	forecast.Times
	MeanPrompt   int     `json:"assumed_mean_prompt"`
	MeanResponse int     `json:"assumed_mean_response"`
	GPUHours     float64 `json:"gpu_hours"`
	Cost         float64 `json:"cost,omitempty"`
	Simulate     string  `json:"simulate_command,omitempty"`
	NoSimulation string  `json:"no_simulation,omitempty"` // why there is no command
}

type planDisk struct {
	forecast.Disk
	Sum float64 `json:"sum"`
}

type planRefuse struct {
	Why    string           `json:"why"`
	Advice []workers.Advice `json:"settings_that_fit"`
}

// Run plans, prints, and fails if the run could not be started.
func (c *planCmd) Run(_ context.Context, s *streams) error {
	p, refusals, err := c.plan()
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(s.out)
		e.SetIndent("", "  ")
		if err := e.Encode(p); err != nil {
			return fault.New(fault.Internal, "steady plan", "%w", err)
		}
	} else if _, err := fmt.Fprint(s.out, p.text()); err != nil {
		return err
	}
	return errors.Join(refusals...)
}

// plan computes everything. The second result are the reasons for which a run cannot be started; the last one an error of the question itself.
func (c *planCmd) plan() (*planned, []error, error) {
	if c.Named != "" && c.Recipe != "" && c.Named != c.Recipe {
		return nil, nil, fault.New(fault.Invalid, "", "the recipe is %s and --recipe %s", c.Named, c.Recipe).WithHint("name one recipe")
	}
	if c.Named == "" && c.Recipe == "" && len(c.File) == 0 {
		return nil, nil, fault.New(fault.Invalid, "", "no recipe and no file is given").WithHint("for example: steady plan sc-taco-1gpu")
	}
	for _, flag := range []struct {
		name string
		v    float64
		got  any
	}{
		{"--memory", c.Memory, c.Memory},
		{"--price", c.Price, c.Price},
		{"--gpus", float64(c.GPUs), c.GPUs},
		{"--cache-tokens", float64(c.CacheTokens), c.CacheTokens},
		{"--mean-prompt", float64(c.MeanPrompt), c.MeanPrompt},
		{"--mean-response", float64(c.MeanResponse), c.MeanResponse},
	} {
		if flag.v < 0 || flag.v > 1e9 {
			return nil, nil, fault.New(fault.Invalid, "", "%s %v: want a number from 0 to 1e9", flag.name, flag.got).WithHint("leave %s out for its default", flag.name)
		}
	}
	if most := 1 + simulate.MostWorkers; c.GPUs > most { // what no simulation can try is no plan
		return nil, nil, fault.New(fault.Invalid, "", "--gpus %d: want at most %d, one that trains and %d that generate", c.GPUs, most, simulate.MostWorkers).
			WithHint("more than rollout.batch_problems x rollout.group_size GPUs have nothing to generate; leave --gpus out for its default")
	}
	cfg, sources, err := c.load(c.Named)
	if err != nil {
		return nil, nil, err
	}
	open, err := cfg.Examine(sources)
	if err != nil {
		return nil, nil, err
	}
	card, err := plan.CardNamed(c.GPU)
	if err != nil {
		return nil, nil, err
	}
	if c.Memory > 0 {
		card.Name, card.MiB = fmt.Sprintf("%g GiB at the speed of %s", c.Memory, card.Name), int(c.Memory*1024)
	}
	about, m, err := c.model(cfg)
	if err != nil {
		return nil, nil, err
	}
	p := &planned{Recipe: cfg.Recipe, Model: about, Parameters: plan.Parameters(m), Card: card, GPUs: c.gpus(cfg), cfg: cfg}
	p.Shared = p.GPUs == 1
	p.Host = 16 * p.Parameters
	refusals := p.refuseOpen(open)
	fit, err := p.memory(c, m)
	if err != nil {
		return nil, nil, err
	}
	refusals = append(refusals, fit...)
	p.forecast(c, m)
	return p, refusals, nil
}

// refuseOpen turns what keeps the configuration from being run into errors. Values that a person has to give are not part of a plan.
func (p *planned) refuseOpen(open []string) []error {
	var errs []error
	for _, line := range open {
		if strings.HasPrefix(line, "model.path:") || strings.HasPrefix(line, "data.shards:") {
			continue
		}
		p.Open = append(p.Open, line)
		err := fault.New(fault.Invalid, "steady plan", "this run is refused when it starts: %s", line).WithHint("set the key to what this build can do")
		if strings.HasPrefix(line, "engine.trainer_ranks:") {
			err = err.WithHint("the numbers above are those of one trainer that holds the whole state; recipes sc-taco-1gpu and sc-taco-2gpu train the same way on it")
		}
		errs = append(errs, err)
	}
	return errs
}

// gpus is the number of GPUs of a plan.
func (c *planCmd) gpus(cfg *config.Config) int {
	switch {
	case c.GPUs > 0:
		return c.GPUs
	case cfg.Recipe == "sc-taco":
		return 8
	case cfg.Mode == "sync", cfg.Recipe == "demo":
		return 1
	}
	return 2
}

// model returns the sizes of the model, and what they are from.
func (c *planCmd) model(cfg *config.Config) (string, model.Config, error) {
	path := cfg.Model.Path
	if c.Model != "" {
		if s, err := plan.SizeNamed(c.Model); err == nil {
			return "Qwen3-" + s.Name + ", published sizes", s.Model, nil
		}
		path = c.Model
	}
	switch path {
	case "":
		return "", model.Config{}, fault.New(fault.Invalid, "steady plan", "no model is given").WithHint("--model 4B or --model DIR, or set model.path")
	case config.Bundled:
		data, err := fs.ReadFile(demo.Model(), weights.ConfigFile)
		if err != nil {
			return "", model.Config{}, fault.New(fault.Internal, "steady plan", "%w", err)
		}
		m, err := weights.ParseConfig(data)
		return "the bundled model", m, err
	}
	if _, err := os.Stat(filepath.Join(path, weights.ConfigFile)); err != nil {
		if s, serr := plan.SizeNamed(filepath.Base(path)); serr == nil && c.Model == "" {
			return fmt.Sprintf("Qwen3-%s, published sizes (%s is not here)", s.Name, path), s.Model, nil
		}
		return "", model.Config{}, fault.New(fault.NotFound, "steady plan", "%s is no model directory and no size: %w", path, err).
			WithHint("give --model DIR with a config.json, or --model 0.6B, 1.7B, 4B, 8B or 14B")
	}
	m, err := weights.LoadConfig(path)
	if err != nil {
		return "", model.Config{}, err
	}
	about := path + "/" + weights.ConfigFile
	found, err := weights.CheckHeaders(path, m)
	if err != nil {
		return "", model.Config{}, err
	}
	if found {
		about += " and the headers of its weights"
	} else {
		about += "; its weights are not there"
	}
	return about, m, nil
}

// memory fills in what each GPU needs and what fits where, and returns a refusal for each GPU on which the run does not fit.
func (p *planned) memory(c *planCmd, m model.Config) ([]error, error) {
	at := func(trainer, sampler bool) plan.Use {
		return workers.Memory(p.cfg, m, trainer, sampler, p.cfg.Engine.MaxSequences, c.CacheTokens)
	}
	trainer, sampler, both := at(true, false), at(false, true), at(true, true)
	uses, names := []plan.Use{trainer, sampler}, []string{"trainer", "sampler"}
	if p.Shared {
		uses, names = []plan.Use{both}, []string{"trainer and sampler"}
	}
	var errs []error
	for i, u := range uses {
		if err := u.Check(); err != nil {
			return nil, err
		}
		p.Memory = append(p.Memory, planMemoryOf(names[i], u, p.Card.Bytes()))
		if err := workers.CheckMemory(u, p.Card.Name, p.Card.Bytes(), p.cfg.Rollout.MaxPrompt); err != nil {
			errs = append(errs, err)
			why := fault.Text(err)
			p.Refusals = append(p.Refusals, planRefuse{Why: why, Advice: workers.Advise(u, p.Card.Bytes(), p.cfg.Rollout.MaxPrompt)})
		}
	}
	for _, size := range plan.Qwen3() {
		least := func(u plan.Use) int {
			u.Model = size.Model
			return plan.Least(u).Bytes()
		}
		p.Sizes = append(p.Sizes, planSize{size.Name, least(trainer), least(sampler), least(both)})
	}
	for _, card := range plan.Cards() {
		b := card.Bytes()
		p.Cards = append(p.Cards, planCard{card, plan.Fits(trainer, b), plan.Fits(sampler, b), plan.Fits(both, b)})
	}
	return errs, nil
}

func planMemoryOf(role string, u plan.Use, memory int) planMemory {
	need := plan.Least(u)
	out := planMemory{Role: role, Least: need.Bytes(), Fits: plan.Fits(u, memory), use: u, by: map[string][]int{}}
	for _, s := range need.Sides {
		out.Sides = append(out.Sides, s.Name)
	}
	for _, class := range plan.Classes() {
		row := planClass{Class: class, Bytes: map[string]int{}}
		for _, side := range out.Sides {
			if n := need.ByClass(side, class); n > 0 {
				row.Bytes[side] = n
			}
		}
		if len(row.Bytes) > 0 {
			out.Class = append(out.Class, row)
		}
	}
	if out.Fits {
		fill := plan.Fill(u, memory)
		out.Fill = &fill
	}
	out.Most = &planMost{Longest: plan.LongestThatFits(u, memory), Sequences: plan.SequencesThatFit(u, memory)}
	if u.Trainer {
		out.Most.Micro = plan.MicroThatFits(u, memory)
	}
	return out
}

// forecast fills in disk and, where everything fits, rates, time and cost.
func (p *planned) forecast(c *planCmd, m model.Config) {
	cfg, r := p.cfg, p.cfg.Rollout
	response := c.MeanResponse
	if response == 0 {
		response = min(2500, max(1, r.MaxResponse/2))
	}
	response = min(response, r.MaxResponse)
	prompt := min(max(c.MeanPrompt, 1), r.MaxPrompt)
	steps := cfg.Run.Steps - cfg.Run.InitStep
	validations := 2 + steps/cfg.Run.ValidateEvery // step 0 and the export
	if steps%cfg.Run.ValidateEvery != 0 {
		validations++
	}
	p.Disk.Disk = forecast.DiskOf(p.Parameters, forecast.Keep{
		Steps: steps, CheckpointEvery: cfg.Run.CheckpointEvery, Checkpoints: cfg.Retention.Checkpoints, MilestoneEvery: cfg.Retention.MilestoneEvery,
		Threshold: r.StalenessThreshold, Record: r.TopKRecord, Responses: steps * r.BatchProblems * r.GroupSize, DevResponses: validations * cfg.Data.Dev,
		MeanResponse: response,
	})
	p.Disk.Sum = p.Disk.Disk.Sum()
	if p.Parameters < leastForecast {
		p.NoRates = fmt.Sprintf("rates were measured from 0.6 to 4 billion weights; a model of %s is bound by other things: measure it", thousands(p.Parameters))
		return
	}
	trains, generates := p.Memory[0], p.Memory[len(p.Memory)-1]
	if !trains.Fits || !generates.Fits || len(p.Open) > 0 {
		p.NoRates = "the run would not start"
		return
	}
	kept := 0.0
	if f := trains.Fill; f.Rich {
		kept = 1
	} else if m.Layers > 0 {
		kept = float64(f.Layers-1) / float64(m.Layers) // one serves all others in turn
	}
	samplers := max(1, p.GPUs-1)
	t := forecast.Estimate(forecast.Rates{Model: m, Card: p.Card, Kept: kept}, forecast.Run{
		Steps: steps, Validations: validations, Problems: r.BatchProblems, Group: r.GroupSize, DevProblems: cfg.Data.Dev, MeanPrompt: prompt,
		MeanResponse: response, MaxResponse: r.MaxResponse, Async: cfg.Mode == "async", Prefill: r.Prefill, Samplers: samplers, Shared: p.Shared,
		Together: generates.Fill.Together,
	})
	p.Rates = &planRates{Times: t, MeanPrompt: prompt, MeanResponse: response, GPUHours: t.Hours * float64(p.GPUs)}
	p.Rates.Cost = p.Rates.GPUHours * c.Price
	args := p.simulation(c, t, samplers, response)
	if err := tryCommand(args); err != nil {
		p.Rates.NoSimulation = fault.Text(err)
		return
	}
	words := []string{"steady"}
	for _, arg := range args {
		words = append(words, shellWord(arg))
	}
	p.Rates.Simulate = strings.Join(words, " ")
}

// simulation are the arguments with which `steady simulate` plays the run with these rates.
func (p *planned) simulation(c *planCmd, t forecast.Times, samplers, response int) []string {
	args := []string{"simulate"}
	if p.Recipe != "" {
		args = append(args, "--recipe", p.Recipe)
	}
	for _, f := range c.File {
		args = append(args, "-f", f)
	}
	for _, set := range c.Set {
		args = append(args, "--set", set)
	}
	tenths := func(v float64) string {
		if v < 1 { // one decimal would say nothing
			return strconv.FormatFloat(v, 'g', 3, 64)
		}
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return append(args, "--rollout-workers", strconv.Itoa(samplers), "--slots", strconv.Itoa(max(1, int(t.TogetherMean))), "--tokens-per-second", tenths(t.ResponseRate),
		"--update-seconds", tenths(t.Update), "--lengths", fmt.Sprintf("lognormal:mean=%d,sigma=1.0", response))
}

// tryCommand reads a command line for `steady simulate` as that command does, and returns what it would refuse.
func tryCommand(args []string) error {
	var c cli
	parser, err := grammar(&c)
	if err != nil {
		return err
	}
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	_, err = c.Simulate.cases()
	return err
}

// shellWord writes an argument so that a shell reads it as it is.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
