package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// checker collects broken rules.
type checker struct {
	sources  Sources
	problems []problem
}

// problem is a broken rule. An open one is no mistake: the value is missing so far, or this build cannot do what it asks for.
type problem struct {
	text string
	open bool
}

// want records a broken rule of key.
func (c *checker) want(ok bool, key, rule string, got any) { c.note(ok, false, key, rule, got) }

// wantToRun records a rule of key that only a run has to keep.
func (c *checker) wantToRun(ok bool, key, rule string, got any) { c.note(ok, true, key, rule, got) }

func (c *checker) note(ok, open bool, key, rule string, got any) {
	if ok {
		return
	}
	line := fmt.Sprintf("%s: %s, got %s", key, rule, short(Text(got)))
	if c.sources != nil {
		line += " (from " + c.sources.Of(key) + ")"
	}
	c.problems = append(c.problems, problem{line, open})
}

func (c *checker) oneOf(key, got string, allowed ...string) {
	c.want(slices.Contains(allowed, got), key, "must be one of "+strings.Join(allowed, ", "), got)
}

func atLeast[T int | float64 | Duration | Bytes](c *checker, key string, got, least T) {
	c.want(got >= least, key, "must be at least "+Text(least), got)
}

// Upper bounds of what a slip of the keyboard would let a worker allocate, far above what any machine has.
const (
	MostThreads   = 4096    // of an engine
	MostSlots     = 4096    // programs at once
	MostSequences = 65_536  // that one engine generates at once
	mostSteps     = 999_999 // names of files have six digits
	mostResponses = 1024    // to one problem
	mostProblems  = 4096    // of a batch: one message names them all
	mostLag       = 1000    // steps
	mostOpen      = 1000    // groups in flight: the server allows a workflow 2,000 children that have not ended
)

func atMost(c *checker, key string, got, most int) {
	c.want(got <= most, key, "must be at most "+Text(most), got)
}

func positive[T int | float64 | Duration | Bytes](c *checker, key string, got T) {
	c.want(got > 0, key, "must be greater than 0", got)
}

// temperature wants one that divides logits to numbers.
func temperature(c *checker, key string, got float64) {
	c.want(got >= 1e-3 && got <= 1e3, key, "must be at least 0.001 and at most 1000", got)
}

// Validate reports every rule that c breaks, one a line, as one error of kind Invalid: "key: rule, got value (from
// source)". Without sources the last part is left out. What needs the machine (files, the
// interpreter, memory) is checked by who opens it.
func (c *Config) Validate(sources Sources) error {
	return invalid(c.examine(sources))
}

// Examine tells mistakes, as the error of Validate, from what keeps a configuration from being run by this program and is no
// mistake: the model or the data are not given, or this build lacks something. Each such problem is a line of open.
func (c *Config) Examine(sources Sources) (open []string, err error) {
	var wrong []problem
	for _, p := range c.examine(sources) {
		if p.open {
			open = append(open, p.text)
		} else {
			wrong = append(wrong, p)
		}
	}
	return open, invalid(wrong)
}

func (c *Config) examine(sources Sources) []problem {
	v := &checker{sources: sources}
	v.oneOf("mode", c.Mode, "async", "sync")
	c.checkRun(v)
	c.checkInputs(v)
	c.checkRollout(v)
	c.checkSandbox(v)
	c.checkTrain(v)
	c.checkKeeping(v)
	c.checkTimeouts(v)
	return v.problems
}

func invalid(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.text
	}
	return fault.New(fault.Invalid, "config.Validate", "%s", strings.Join(lines, "\n")).
		WithHint("change these keys in the file or with --set; `steady config print` shows every key with its meaning")
}

// runName is what a run may be called: it becomes a directory and a workflow id.
var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// ValidRunName reports whether name may be the name of a run.
func ValidRunName(name string) bool { return runName.MatchString(name) }

func (c *Config) checkRun(v *checker) {
	unset := c.Run.Steps == 0 && v.sources.Of("run.steps") == "default" // there is no default that makes sense
	v.note(c.Run.Steps >= 1, unset, "run.steps", "must be at least 1", c.Run.Steps)
	atMost(v, "run.steps", c.Run.Steps, mostSteps)
	atLeast(v, "run.validate_every", c.Run.ValidateEvery, 1)
	atLeast(v, "run.checkpoint_every", c.Run.CheckpointEvery, 1)
	atLeast(v, "run.continue_every", c.Run.ContinueEvery, 1)
	atLeast(v, "run.init_step", c.Run.InitStep, 0)
	v.want(c.Run.InitRun == "" || ValidRunName(c.Run.InitRun), "run.init_run", "must be the name of a run", c.Run.InitRun)
	v.want(c.Run.InitRun != "" || c.Run.InitStep == 0, "run.init_step", "needs run.init_run", c.Run.InitStep)
	v.want(c.Run.InitRun != "" || c.Run.InitLineage == "", "run.init_lineage", "needs run.init_run", c.Run.InitLineage)
	v.want(c.Run.InitStep == 0 || c.Run.InitStep < c.Run.Steps, "run.init_step",
		fmt.Sprintf("must be before run.steps (%d)", c.Run.Steps), c.Run.InitStep)
}

func (c *Config) checkInputs(v *checker) {
	v.wantToRun(c.Model.Path != "", "model.path", "must be given", c.Model.Path)
	v.want(c.Engine.Backend != "external", "engine.backend",
		"a run trains, in either mode, and an external server cannot take the weights of a step: use cpu or ref", c.Engine.Backend)
	if c.Engine.Backend != "external" {
		v.oneOf("engine.backend", c.Engine.Backend, "cpu", "ref", "cuda")
	}
	atLeast(v, "engine.threads", c.Engine.Threads, 0)
	atMost(v, "engine.threads", c.Engine.Threads, MostThreads)
	atLeast(v, "engine.max_sequences", c.Engine.MaxSequences, 1)
	atMost(v, "engine.max_sequences", c.Engine.MaxSequences, MostSequences)
	atLeast(v, "engine.trainer_ranks", c.Engine.TrainerRanks, 1)
	v.wantToRun(c.Engine.TrainerRanks <= 1, "engine.trainer_ranks",
		"this build has no trainer that is sharded over several processes, only 1", c.Engine.TrainerRanks)
	v.wantToRun(len(c.Data.Shards) > 0, "data.shards", "must list at least one file", c.Data.Shards)
	v.want(!slices.Contains(c.Data.Shards, ""), "data.shards", "must not hold an empty name", c.Data.Shards)
	v.want(!slices.Contains(c.Data.Shards, Bundled) || len(c.Data.Shards) == 1, "data.shards",
		"bundled stands for all shards of the demo and must be alone", c.Data.Shards)
	atLeast(v, "data.train", c.Data.Train, 1)
	atLeast(v, "data.dev", c.Data.Dev, 1)
	atLeast(v, "data.solution_tries", c.Data.SolutionTries, 1)
	v.want(c.Data.Train >= c.Rollout.BatchProblems, "data.train",
		fmt.Sprintf("must be at least rollout.batch_problems (%d)", c.Rollout.BatchProblems), c.Data.Train)
}

func (c *Config) checkRollout(v *checker) {
	r := c.Rollout
	atLeast(v, "rollout.group_size", r.GroupSize, 2) // of one response the advantage is always 0
	atMost(v, "rollout.group_size", r.GroupSize, mostResponses)
	atLeast(v, "rollout.batch_problems", r.BatchProblems, 1)
	atMost(v, "rollout.batch_problems", r.BatchProblems, mostProblems)
	atLeast(v, "rollout.prefill", r.Prefill, 0)
	atLeast(v, "rollout.staleness_threshold", r.StalenessThreshold, 1)
	atMost(v, "rollout.staleness_threshold", r.StalenessThreshold, mostLag)
	v.want(c.Mode != "async" || r.Prefill < r.StalenessThreshold, "rollout.prefill",
		fmt.Sprintf("must be smaller than rollout.staleness_threshold (%d), or every group is too old when its turn comes", r.StalenessThreshold), r.Prefill)
	atLeast(v, "rollout.lag", r.Lag, 0)
	v.want(c.Mode == "sync" || r.Lag == 0, "rollout.lag", "must be 0 in mode async, where rollout.prefill and rollout.staleness_threshold bound the lag", r.Lag)
	v.want(c.Mode != "sync" || r.Lag == 0 || r.Lag < r.StalenessThreshold, "rollout.lag",
		fmt.Sprintf("must be smaller than rollout.staleness_threshold (%d), or every group is too old when its turn comes", r.StalenessThreshold), r.Lag)
	prefill, ahead := 0, "rollout.prefill"
	switch c.Mode {
	case "async":
		prefill = max(min(r.Prefill, mostLag), 0)
	case "sync":
		prefill, ahead = max(min(r.Lag, mostLag), 0), "rollout.lag"
	}
	if open := (prefill + 1) * max(min(r.BatchProblems, mostProblems), 0); open > mostOpen {
		v.want(false, "rollout.batch_problems", fmt.Sprintf("times (%s + 1) must be at most %d groups in flight, they are %d", ahead, mostOpen, open), r.BatchProblems)
	}
	v.oneOf("rollout.staleness_policy", r.StalenessPolicy, "drop", "wait", "cancel_early")
	atLeast(v, "rollout.fault_window", r.FaultWindow, 1)
	atMost(v, "rollout.fault_window", r.FaultWindow, mostLag)
	positive(v, "rollout.fault_share", r.FaultShare)
	v.oneOf("rollout.fault_action", r.FaultAction, "pause", "fail")
	atLeast(v, "rollout.max_turns", r.MaxTurns, 1)
	atLeast(v, "rollout.max_calls_per_turn", r.MaxCallsPerTurn, 1)
	atLeast(v, "rollout.max_turn_tokens", r.MaxTurnTokens, 0)
	v.wantToRun(r.MaxCallsPerTurn <= 1, "rollout.max_calls_per_turn", "this build runs 1 call a turn", r.MaxCallsPerTurn)
	atLeast(v, "rollout.max_prompt", r.MaxPrompt, 1)
	atLeast(v, "rollout.max_response", r.MaxResponse, 1)
	v.want(r.MaxTotal > r.MaxPrompt && r.MaxTotal <= r.MaxPrompt+r.MaxResponse, "rollout.max_total",
		fmt.Sprintf("must be more than max_prompt (%d) and at most max_prompt + max_response (%d)", r.MaxPrompt, r.MaxPrompt+r.MaxResponse), r.MaxTotal)
	atLeast(v, "rollout.tool_output_limit", r.ToolOutputLimit, 1)
	temperature(v, "rollout.temperature", r.Temperature)
	v.oneOf("rollout.precision", r.Precision, "fp32", "bf16", "int8")
	v.want(r.Precision == "fp32" || c.Engine.Backend == "cpu", "rollout.precision",
		fmt.Sprintf("must be fp32 for engine.backend %s: only the engine cpu has others", c.Engine.Backend), r.Precision)
	atLeast(v, "rollout.top_k_record", r.TopKRecord, 0)
	atLeast(v, "rollout.flush_interval", r.FlushInterval, Duration(100_000_000))
	temperature(v, "validation.temperature", c.Validation.Temperature)
	atLeast(v, "validation.chunk", c.Validation.Chunk, 1)
}

// pythonVersion is a minor version or a full one.
var pythonVersion = regexp.MustCompile(`^3\.\d+(\.\d+)?$`)

func (c *Config) checkSandbox(v *checker) {
	s := c.Sandbox
	v.want(s.PythonVersion == "" || pythonVersion.MatchString(s.PythonVersion), "sandbox.python_version",
		"must look like 3.12 or 3.12.3", s.PythonVersion)
	positive(v, "sandbox.time_limit", s.TimeLimit)
	atLeast(v, "sandbox.memory", s.Memory, 64<<20) // less does not start an interpreter
	atLeast(v, "sandbox.output_limit", s.OutputLimit, 1)
	atLeast(v, "sandbox.slots", s.Slots, 0)
	atMost(v, "sandbox.slots", s.Slots, MostSlots)
	v.want(s.JudgeBudget >= s.TimeLimit, "sandbox.judge_budget",
		fmt.Sprintf("must be at least sandbox.time_limit (%s)", s.TimeLimit), s.JudgeBudget)
}

func (c *Config) checkTrain(v *checker) {
	t, o := c.Train, c.Train.Objective
	v.oneOf("train.objective.centering", o.Centering, "proportional", "full", "off")
	v.oneOf("train.objective.rule", o.Rule, "none", "tis", "band")
	positive(v, "train.objective.cap", o.Cap)
	atLeast(v, "train.objective.lo", o.Lo, 0)
	v.want(o.Hi > o.Lo, "train.objective.hi", fmt.Sprintf("must be greater than lo (%s)", Text(o.Lo)), o.Hi)
	v.want(o.Centering == "off" || c.Rollout.TopKRecord >= 1, "rollout.top_k_record",
		"must be at least 1 for train.objective.centering "+o.Centering, c.Rollout.TopKRecord)
	positive(v, "train.learning_rate", t.LearningRate)
	if t.LearningRate > 0 {
		v.want(t.LearningRate >= 0x1p-126, "train.learning_rate", "must be at least 1.18e-38, since trainers compute with 32 bits", t.LearningRate)
	}
	v.want(t.Beta1 >= 0 && t.Beta1 < 1, "train.beta1", "must be in [0, 1)", t.Beta1)
	v.want(t.Beta2 >= 0 && t.Beta2 < 1, "train.beta2", "must be in [0, 1)", t.Beta2)
	positive(v, "train.epsilon", t.Epsilon)
	atLeast(v, "train.weight_decay", t.WeightDecay, 0)
	atLeast(v, "train.clip_norm", t.ClipNorm, 0)
	atLeast(v, "train.micro_batch_tokens", t.MicroBatchTokens, 1)
}

func (c *Config) checkKeeping(v *checker) {
	atLeast(v, "retention.checkpoints", c.Retention.Checkpoints, 2) // one may turn out corrupt
	atLeast(v, "retention.milestone_every", c.Retention.MilestoneEvery, 0)
	atLeast(v, "export.shard_size", c.Export.ShardSize, 1<<20)
}

func (c *Config) checkTimeouts(v *checker) {
	t := c.Timeouts
	for _, x := range []struct {
		key string
		d   Duration
	}{
		{"control", t.Control},
		{"shard", t.Shard},
		{"rollout", t.Rollout},
		{"judge", t.Judge},
		{"update", t.Update},
		{"export", t.Export},
		{"heartbeat", t.Heartbeat},
		{"trainer_lost", t.TrainerLost},
		{"stall", t.Stall},
		{"closed_check", t.ClosedCheck},
	} {
		atLeast(v, "timeouts."+x.key, x.d, Duration(1_000_000_000))
	}
	v.want(t.Stall >= c.Sandbox.JudgeBudget, "timeouts.stall",
		fmt.Sprintf("must be at least sandbox.judge_budget (%s), in which a judge is silent", c.Sandbox.JudgeBudget), t.Stall)
	v.want(t.ClosedCheck <= Duration(30_000_000_000), "timeouts.closed_check", "must be at most 30s", t.ClosedCheck)
}
