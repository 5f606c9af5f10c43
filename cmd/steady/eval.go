package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/dataset/deepcoder"
	"github.com/steadyrl/steady/internal/dataset/lcb"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/external"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
	"github.com/steadyrl/steady/workers"
)

type evalCmd struct {
	Run_    evalRunCmd     `cmd:"" name:"run" default:"withargs" help:"Evaluate a model on a problem set (the default)."` //nolint:revive,stylecheck // Run is kong's method
	Compare evalCompareCmd `cmd:"" help:"Compare two finished evaluations of the same problems, problem by problem."`
}

// Help is shown by --help, below the first line.
func (evalCmd) Help() string {
	return `A response is sampled, run and judged exactly as in a validation: same prompt, tool loop, sandbox, judge and draws. What is finished is kept, so that the same command goes on after an interruption or a kill; with other settings it is refused. The result is eval.json in the directory --out; docs/eval.md says what it holds and what can be compared with it.

Repeat the validation of a run's export:
  steady eval --model STORE/runs/RUN/l0/export -f STORE/runs/RUN/l0/config.json --data taco --set STORE/datasets/KEY

Estimate pass@1 and pass@8 on a window of LiveCodeBench:
  steady eval --model DIR --data lcb --set LCB --from 2024-08-01 --until 2025-02-01 --samples 8 --k 1,8 --max-response 32768 --out EVAL

Sample from a server that is running (of --model only configuration and tokenizer are read):
  steady eval --endpoint http://host:8000 --served-model NAME --dialect vllm --model DIR --data taco --set SET

steady eval run --help lists the flags. Exit status: 0 done, 1 the machinery failed (start again to go on), 2 usage, 4 interrupted, 5 a file is not as it was written.`
}

type evalRunCmd struct {
	sandboxFlags
	Model        string   `required:"" placeholder:"DIR" help:"Exported model or base model in Hugging Face layout, runs/RUN/l0/export in a store; bundled for the demo's. With --endpoint only its configuration and tokenizer are read."`
	Engine       string   `default:"cpu" enum:"cpu,ref,cuda" help:"Engine: cpu, ref, or cuda (in steady-cuda)."`
	Device       string   `placeholder:"GPU" help:"GPU of the engine cuda: its number or UUID; default: the first."`
	Threads      int      `help:"Threads of the engine; 0 for all cores. Results do not depend on it."`
	Endpoint     string   `placeholder:"URL" help:"Sample from a server instead of an engine, for example http://host:8000. It is asked at the start for all that is needed."`
	ServedModel  string   `name:"served-model" placeholder:"NAME" help:"Name under which the server knows the model."`
	Dialect      string   `default:"vllm" enum:"vllm,sglang" help:"What the server is: vllm or sglang."`
	EndpointKey  string   `env:"STEADY_ENDPOINT_KEY" placeholder:"KEY" help:"Bearer token of the server; better in the environment, which other users do not see."`
	Data         string   `required:"" enum:"taco,lcb,deepcoder,jsonl" placeholder:"KIND" help:"What --set is. taco: a prepared data set. lcb: a directory with LiveCodeBench's files. deepcoder: Parquet files of DeepCoder-Preview-Dataset. jsonl: files of your own problems."`
	Set          []string `required:"" sep:"none" placeholder:"PATH" help:"The problems: datasets/KEY in a store, or what --data says; repeat it for several files of DeepCoder or of your own."`
	Split        string   `default:"dev" enum:"dev,train" help:"Split of a prepared data set: dev or train."`
	Release      int      `placeholder:"N" help:"Release of LiveCodeBench, 1 to 6; default: the newest."`
	From         string   `placeholder:"DAY" help:"First day of a contest of LiveCodeBench, as 2024-08-01."`
	Until        string   `placeholder:"DAY" help:"First day that is out."`
	Samples      int      `default:"1" placeholder:"N" help:"Responses to each problem."`
	K            []int    `placeholder:"K" help:"Values of k for pass@k, at most --samples; default: 1 and --samples."`
	Limit        int      `placeholder:"N" help:"Only the first N problems; 0 for all."`
	Recipe       string   `placeholder:"NAME" help:"Recipe whose lengths, limits and seed are taken: demo, sc-taco, sc-taco-1gpu, sc-taco-2gpu."`
	Config       []string `short:"f" type:"path" placeholder:"FILE" help:"Configuration over the recipe; runs/RUN/l0/config.json in a store has all settings of a run."`
	Assign       []string `sep:"none" placeholder:"KEY=VALUE" help:"Assignment over these, for example --assign rollout.max_prompt=8192; may be repeated. Read are run.seed, rollout.*, validation.temperature and sandbox.*."`
	Temperature  *float64 `placeholder:"T" help:"Sampling temperature (validation.temperature)."`
	MaxResponse  *int     `placeholder:"N" help:"Longest response in tokens (rollout.max_response); the longest trajectory becomes the longest prompt and this."`
	Seed         *uint64  `placeholder:"N" help:"Seed of every draw (run.seed)."`
	MaxSequences int      `default:"64" placeholder:"N" help:"Responses that are sampled at once."`
	Out          string   `default:"eval" type:"path" placeholder:"DIR" help:"Directory of the evaluation: new, empty, or one that goes on with the same settings."`
	JSON         bool     `help:"Print the result file instead of a table."`
}

// check looks at the flags before anything is read.
func (c *evalRunCmd) check() error {
	errs := []error{
		checkEngine(c.Engine), checkWithin("--threads", c.Threads, 0, config.MostThreads), checkWithin("--max-sequences", c.MaxSequences, 1, config.MostSequences),
		checkWithin("--slots", c.Slots, 0, config.MostSlots), checkWithin("--samples", c.Samples, 1, 9999), checkAtLeast("--limit", c.Limit, 0),
	}
	for _, k := range c.K {
		errs = append(errs, checkWithin("--k", k, 1, c.Samples))
	}
	if c.Model != config.Bundled {
		errs = append(errs, checkPresent(c.Model, "the directory of a model with --model, runs/RUN/l0/export in a store"))
	}
	if (c.Endpoint == "") != (c.ServedModel == "") {
		errs = append(errs, fault.New(fault.Invalid, "", "--endpoint and --served-model go together").WithHint("the server lists the names of its models"))
	}
	if c.Data != "lcb" && (c.Release != 0 || c.From != "" || c.Until != "") {
		errs = append(errs, fault.New(fault.Invalid, "", "--release, --from and --until are for --data lcb").WithHint("leave them out, or evaluate on --data lcb"))
	}
	if c.Data != "deepcoder" && c.Data != "jsonl" && len(c.Set) != 1 {
		errs = append(errs, fault.New(fault.Invalid, "", "--set has %d paths, --data %s wants one", len(c.Set), c.Data).WithHint("name one directory with --set"))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := os.Stat(c.Out); err != nil && slices.Contains([]string{".json", ".jsonl", ".txt", ".md", ".csv"}, filepath.Ext(c.Out)) {
		return fault.New(fault.Invalid, "", "--out %q has the name of a file; an evaluation fills a directory", c.Out).
			WithHint("choose a directory, as with --out %s; the result is %s in it", strings.TrimSuffix(c.Out, filepath.Ext(c.Out)), eval.ResultFile)
	}
	return checkDir("--out", c.Out)
}

// Run evaluates, or goes on.
func (c *evalRunCmd) Run(ctx context.Context, s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	cfg, err := c.configuration()
	if err != nil {
		return err
	}
	if len(c.K) == 0 {
		c.K = []int{1}
		if c.Samples > 1 {
			c.K = append(c.K, c.Samples)
		}
	}
	slices.Sort(c.K)
	c.K = slices.Compact(c.K)
	set, data, err := c.problems(ctx)
	if err != nil {
		return err
	}
	m, err := openModel(c.Model)
	if err != nil {
		return err
	}
	settings := activities.ValidationSettings(cfg)
	if err := m.fits(settings); err != nil {
		return err
	}
	sampler, about, err := c.sampler(ctx, m, settings)
	if err != nil {
		return err
	}
	defer sampler.Close() //nolint:errcheck // nothing is sampled any more
	box, err := c.open(ctx, s.err)
	if err != nil {
		return err
	}
	defer box.Close() //nolint:errcheck // nothing runs any more
	store, err := artifact.NewFiles(c.Out)
	if err != nil {
		return err
	}
	limits := activities.Limits(cfg)
	res, err := eval.Run(ctx, set, eval.Options{
		Store: store, K: c.K, Sampler: sampler, Vocab: m.config.Vocab, Tokenizer: m.tok, Tool: rollout.Tool{Programs: box, Limits: limits},
		Judge: judge.New(judge.Options{Runner: box, Budget: cfg.Sandbox.JudgeBudget.Std(), Limits: limits}), Slots: box.Slots(), AtOnce: c.MaxSequences,
		FlushInterval: cfg.Rollout.FlushInterval.Std(), Version: version(),
		Settings: eval.Settings{
			Data: data, Model: about, Samples: c.Samples, Seed: cfg.Run.Seed, Sampling: settings,
			Programs: programs(cfg, box.Level()),
		},
		Progress: c.progress(s), Note: func(text string) { fmt.Fprintln(s.err, text) },
	})
	if err != nil {
		return err
	}
	return c.print(ctx, s, store, res)
}

func programs(c *config.Config, l sandbox.Level) eval.Programs {
	b := c.Sandbox
	return eval.Programs{
		Python: l.Python.Version, TimeLimit: b.TimeLimit.Std().Seconds(), Memory: int64(b.Memory), OutputLimit: int64(b.OutputLimit),
		JudgeBudget: b.JudgeBudget.Std().Seconds(),
	}
}

// progress says how far the evaluation is: at the start, at the end, and now and then.
func (c *evalRunCmd) progress(s *streams) func(eval.Progress) {
	var last time.Time
	return func(p eval.Progress) {
		switch now := time.Now(); {
		case p.Done == 0:
			fmt.Fprintf(s.err, "%d problems, %d responses each, in %s\n", p.Problems, c.Samples, c.Out)
		case p.Done == p.Problems || now.Sub(last) >= 5*time.Second:
			last = now
			found := ""
			if p.Found > 0 {
				found = fmt.Sprintf(" (%d were finished before)", p.Found)
			}
			fmt.Fprintf(s.err, "%d of %d problems%s, %d of %d responses are right\n", p.Done, p.Problems, found, p.Right, p.Finished)
		}
	}
}

func (c *evalRunCmd) print(ctx context.Context, s *streams, store artifact.Store, res *eval.Result) error {
	if c.JSON {
		text, _, err := store.Get(ctx, eval.ResultFile)
		if err != nil {
			return err
		}
		_, err = s.out.Write(text)
		return err
	}
	_, err := fmt.Fprintf(s.out, "%s\nwrote %s\n", res.Table(), filepath.Join(c.Out, eval.ResultFile))
	return err
}

// configuration is that of a run as far as an evaluation needs it.
func (c *evalRunCmd) configuration() (*config.Config, error) {
	cfg, sources, err := config.Load(config.Options{Recipe: c.Recipe, Files: c.Config, Sets: c.Assign})
	if err != nil {
		return nil, err
	}
	if c.Temperature != nil {
		cfg.Validation.Temperature = *c.Temperature
	}
	if c.Seed != nil {
		cfg.Run.Seed = *c.Seed
	}
	if c.MaxResponse != nil {
		cfg.Rollout.MaxResponse, cfg.Rollout.MaxTotal = *c.MaxResponse, cfg.Rollout.MaxPrompt+*c.MaxResponse
	}
	open, err := cfg.Examine(sources)
	if err != nil {
		return nil, fault.New(fault.Invalid, "", "%w", err).
			WithHint("change these keys with --temperature, --seed, --max-response or --assign, or in the file of -f; `steady config print` shows every key with its meaning")
	}
	for _, line := range open { // what only a run needs is not asked for
		if strings.HasPrefix(line, "rollout.") || strings.HasPrefix(line, "sandbox.") {
			return nil, fault.New(fault.Invalid, "", "%s", line).WithHint("change it with --assign")
		}
	}
	return cfg, nil
}

// problems opens the set.
func (c *evalRunCmd) problems(ctx context.Context) (dataset.EvalSet, eval.Data, error) {
	about := eval.Data{Kind: c.Data, Limit: c.Limit}
	switch c.Data {
	case "lcb":
		about.Release, about.From, about.Until = cmp.Or(c.Release, len(lcb.Files())), c.From, c.Until
		set, err := lcb.Open(ctx, c.Set[0], lcb.EvalOptions{Release: about.Release, From: c.From, Until: c.Until})
		return set, about, err
	case "deepcoder":
		set, err := deepcoder.Open(ctx, c.Set, deepcoder.Options{})
		return set, about, err
	case "jsonl":
		set, err := dataset.OpenOwn(ctx, c.Set)
		return set, about, err
	}
	about.Split = c.Split
	if err := checkPresent(c.Set[0], "the directory of a prepared data set with --set, datasets/KEY in a store"); err != nil {
		return nil, about, err
	}
	set, err := dataset.Open(c.Set[0])
	if err != nil {
		return nil, about, err
	}
	return set.Eval(dataset.Split(c.Split)), about, nil
}

// evalModel is a model directory as an evaluation needs it.
type evalModel struct {
	dir    string
	files  fs.FS
	config model.Config
	digest string // of config.json
	tok    *tokenizer.Tokenizer
}

// openModel reads the small files of a model. Errors: Invalid (a file is missing, or this program cannot use it).
func openModel(dir string) (*evalModel, error) {
	m := &evalModel{dir: dir, files: os.DirFS(dir)}
	if dir == config.Bundled {
		m.files = demo.Model()
	}
	read := func(name string) ([]byte, error) {
		data, err := fs.ReadFile(m.files, name)
		if err != nil {
			return nil, fault.New(fault.Invalid, "", "--model: %s: %w", dir, err).WithHint("give a complete model directory in Hugging Face layout")
		}
		return data, nil
	}
	text, err := read(weights.ConfigFile)
	if err != nil {
		return nil, err
	}
	m.digest = artifact.Digest(text)
	if m.config, err = weights.ParseConfig(text); err != nil {
		return nil, err
	}
	if text, err = read(tokenizer.FileName); err != nil {
		return nil, err
	}
	if m.tok, err = tokenizer.Parse(text); err != nil {
		return nil, err
	}
	if err := errors.Join(chat.CheckModel(m.files, dir), chat.CheckTokenizer(m.tok)); err != nil {
		return nil, err
	}
	if m.tok.Size() > m.config.Vocab {
		return nil, fault.New(fault.Invalid, "", "the tokenizer of %s has %d ids, the model's embedding %d rows", dir, m.tok.Size(), m.config.Vocab).
			WithHint("give a directory whose tokenizer.json belongs to its weights")
	}
	return m, nil
}

// fits wants room in the model for the longest trajectory.
func (m *evalModel) fits(s rollout.Settings) error {
	if s.MaxTotal <= m.config.MaxPosition {
		return nil
	}
	return fault.New(fault.Invalid, "", "trajectories may have %d tokens (rollout.max_total), the model has room for %d", s.MaxTotal, m.config.MaxPosition).
		WithHint("give the configuration that the model was trained with (-f or --recipe), or lower rollout.max_prompt with --assign and the response with --max-response")
}

// sampler makes the sampler, with the model's weights.
func (c *evalRunCmd) sampler(ctx context.Context, m *evalModel, set rollout.Settings) (engine.Sampler, eval.Model, error) {
	about := eval.Model{Engine: c.Engine, Config: m.digest, Tokenizer: m.tok.Digest()}
	if c.Endpoint != "" {
		about.Engine, about.Served = c.Dialect, c.ServedModel
		s, err := external.New(ctx, external.Options{
			URL: c.Endpoint, Dialect: c.Dialect, Model: c.ServedModel, Key: c.EndpointKey, Config: m.config, Context: set.MaxTotal,
		})
		if err != nil {
			return nil, about, err
		}
		return s, about, nil
	}
	w, err := m.weights()
	if err != nil {
		return nil, about, err
	}
	about.Weights = weights.Digest(w)
	cert, err := export.ReadCertificate(m.dir)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return nil, about, err
	case err == nil && cert.WeightsDigest != about.Weights:
		return nil, about, fault.New(fault.Corrupt, "", "the weights in %s have digest %.12s, its certificate says %.12s", m.dir, about.Weights, cert.WeightsDigest).
			WithHint("steady verify-export %s says what was changed", m.dir)
	}
	newSampler, err := workers.Samplers(workers.Options{
		Backend: c.Engine, Threads: c.Threads, MaxSequences: c.MaxSequences, GPU: workers.GPU{Device: c.Device, KernelDir: kernelDir()},
	})
	if err != nil {
		return nil, about, err
	}
	s, err := newSampler(m.config)
	if err != nil {
		return nil, about, err
	}
	if err := s.SetWeights(ctx, 0, w); err != nil {
		_ = s.Close() // the first error is the one to report
		return nil, about, err
	}
	return s, about, nil
}

func (m *evalModel) weights() (*model.Weights, error) {
	if m.dir == config.Bundled {
		return weights.LoadFS(m.files)
	}
	return weights.LoadDir(m.dir)
}

type evalCompareCmd struct {
	A    string `arg:"" type:"path" help:"eval.json of the first model."`
	B    string `arg:"" type:"path" help:"eval.json of the second; differences are the second minus the first."`
	JSON bool   `help:"Print JSON."`
}

// Run prints the comparison.
func (c *evalCompareCmd) Run(s *streams) error {
	a, err := eval.Read(c.A)
	if err != nil {
		return err
	}
	b, err := eval.Read(c.B)
	if err != nil {
		return err
	}
	both, err := eval.Compare(a, b)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.out, both)
	}
	_, err = fmt.Fprint(s.out, both.Table())
	return err
}
