package config

// Config is the whole configuration of a run. The tag doc holds meaning, unit and special values of each key;
// docs/config.md and the comments of Print come from it. Defaults live in Default only.
type Config struct {
	Recipe     string     `json:"recipe" doc:"Embedded recipe that the other values build on: demo, sc-taco, sc-taco-1gpu, sc-taco-2gpu; empty for none."`
	Mode       string     `json:"mode" doc:"async: rollouts run beside training, up to the staleness threshold. sync: a batch is submitted after the update before it (lag 0, the same tokens in every run)."`
	Run        Run        `json:"run" doc:"Length of the run and what it starts from."`
	Model      Model      `json:"model" doc:"Initial policy."`
	Engine     Engine     `json:"engine" doc:"What computes."`
	Data       Data       `json:"data" doc:"Problems."`
	Rollout    Rollout    `json:"rollout" doc:"Generation of training trajectories. Lengths are in tokens."`
	Validation Validation `json:"validation" doc:"Evaluation on the dev problems."`
	Sandbox    Sandbox    `json:"sandbox" doc:"Execution of untrusted Python programs."`
	Train      Train      `json:"train" doc:"The update."`
	Retention  Retention  `json:"retention" doc:"What is kept in the artifact store."`
	Export     Export     `json:"export" doc:"Export to Hugging Face files at the end of the run."`
	Timeouts   Timeouts   `json:"timeouts" doc:"Bounds of the Temporal activities."`
}

// Run is the section run.
type Run struct {
	Seed            uint64 `json:"seed" doc:"Seed of every random stream: data order, initial weights, sampling."`
	Steps           int    `json:"steps" doc:"Number of the last training step."`
	ValidateEvery   int    `json:"validate_every" doc:"Validate after every so many steps; step 0 and the last step are always validated."`
	CheckpointEvery int    `json:"checkpoint_every" doc:"Save a checkpoint after every so many steps; step 0 and the last step always have one."`
	ContinueEvery   int    `json:"continue_every" doc:"Steps after which the step loop continues as a new Temporal execution, which bounds its history. It does so earlier if the server suggests it, by default at 4,096 events or 4 MiB: after about 23 steps of 16 groups."`
	InitRun         string `json:"init_run" doc:"Run whose checkpoint this run starts from; empty to start from model.path."`
	InitLineage     string `json:"init_lineage" doc:"Lineage of init_run; empty for its first, l0."`
	InitStep        int    `json:"init_step" doc:"Step of the checkpoint of init_run; 0 for its newest one, which is verified when it is loaded."`
}

// Model is the section model.
type Model struct {
	Path string `json:"path" doc:"Directory of the initial model in Hugging Face layout; bundled for the demo model of this program."`
}

// Engine is the section engine.
type Engine struct {
	Backend      string `json:"backend" doc:"cpu (fast), ref (naive oracle, for tests) or cuda."`
	Threads      int    `json:"threads" doc:"Threads of the CPU engines in one process; 0 for all cores. Results do not depend on it."`
	MaxSequences int    `json:"max_sequences" doc:"Sequences that one rollout engine generates at once; others wait."`
	TrainerRanks int    `json:"trainer_ranks" doc:"Processes that hold the trainer's state together."`
}

// Data is the section data.
type Data struct {
	Shards        []string `json:"shards" doc:"Parquet files in the schema of BAAI/TACO, in order; [bundled] for the demo problems of this program."`
	Exclude       string   `json:"exclude" doc:"File with the identities of excluded problems (LiveCodeBench), JSON Lines; bundled for the demo list; empty for none."`
	Train         int      `json:"train" doc:"Training problems of the split."`
	Dev           int      `json:"dev" doc:"Dev problems of the split."`
	SolutionTries int      `json:"solution_tries" doc:"Reference solutions tried for a problem before it is dropped."`
}

// Rollout is the section rollout.
type Rollout struct {
	GroupSize          int      `json:"group_size" doc:"Responses to each problem; the advantage is the reward minus their mean."`
	BatchProblems      int      `json:"batch_problems" doc:"Problems in a training step."`
	Prefill            int      `json:"prefill" doc:"Batches submitted before step 1 in mode async; also the resting lag in steps."`
	Lag                int      `json:"lag" doc:"Mode sync only: each batch is sampled wholly by the version that is so many steps older than the one in training, always the same one. 0 is on-policy. The first lag + 1 batches are those of the first version. Must be smaller than staleness_threshold."`
	StalenessThreshold int      `json:"staleness_threshold" doc:"Policy versions that may touch a batch: a group submitted in step s trains in step t only if t - s is smaller than this."`
	StalenessPolicy    string   `json:"staleness_policy" doc:"What happens to a group that cannot be trained in time: drop (it finishes, is thrown away and replaced), cancel_early (it is cancelled as soon as no step can use it) or wait (the trainer waits for it, so that none is ever too old). Without effect in mode sync."`
	FaultWindow        int      `json:"fault_window" doc:"Steps over which groups lost to infrastructure faults are counted, the one in progress included."`
	FaultShare         float64  `json:"fault_share" doc:"Alarm: more groups than this share of those that fault_window steps train are lost to infrastructure faults within so many steps."`
	FaultAction        string   `json:"fault_action" doc:"What an alarm does: pause (nothing is sent out or trained until the update resume) or fail (the run ends with a report)."`
	MaxTurns           int      `json:"max_turns" doc:"Assistant turns in a trajectory; a tool call in the last one is not run."`
	MaxCallsPerTurn    int      `json:"max_calls_per_turn" doc:"Tool calls run in one turn; the others are dropped."`
	MaxTurnTokens      int      `json:"max_turn_tokens" doc:"Longest assistant turn, in sampled tokens; 0 leaves it to max_response and max_total."`
	MaxPrompt          int      `json:"max_prompt" doc:"Longest prompt, tool schema included; longer problems are filtered out."`
	MaxResponse        int      `json:"max_response" doc:"Longest response: everything after the prompt, tool observations included."`
	MaxTotal           int      `json:"max_total" doc:"Longest trajectory."`
	ToolOutputLimit    int      `json:"tool_output_limit" doc:"Characters of a tool's output shown to the model; more is cut in the middle."`
	Temperature        float64  `json:"temperature" doc:"Sampling temperature of training trajectories."`
	Precision          string   `json:"precision" doc:"Arithmetic of the sampler of training trajectories and validations: fp32, bf16 (what layers compute is rounded, logits included) or int8 (the matrices of the layers are rounded). What is recorded of a token is that of the rounded model. The trainer and the validation of the export stay as they are. engine.backend cpu only."`
	TopKRecord         int      `json:"top_k_record" doc:"Most probable tokens recorded with each sampled token. A recording width, never a truncation of sampling."`
	FlushInterval      Duration `json:"flush_interval" doc:"How often unfinished trajectories are written to the store."`
	Thinking           bool     `json:"thinking" doc:"Prompt the model in thinking mode."`
}

// Validation is the section validation.
type Validation struct {
	Temperature float64 `json:"temperature" doc:"Sampling temperature of validation responses."`
	Chunk       int     `json:"chunk" doc:"Dev problems in one rollout activity."`
}

// Sandbox is the section sandbox.
type Sandbox struct {
	Python        string   `json:"python" doc:"Python interpreter; empty for a 3.12 found on the machine, else any python3 from 3.9 on, with a warning."`
	PythonVersion string   `json:"python_version" doc:"Version that the interpreter must have, for example \"3.12\"; empty for any from 3.9 on."`
	TimeLimit     Duration `json:"time_limit" doc:"Charged time of one execution."`
	Memory        Bytes    `json:"memory" doc:"Address space of one execution."`
	OutputLimit   Bytes    `json:"output_limit" doc:"Length of each output stream of one execution."`
	JudgeBudget   Duration `json:"judge_budget" doc:"Sum of charged time of one submission; tests not run by then count as failed."`
	Slots         int      `json:"slots" doc:"Executions at once in one judge process; 0 for the number of cores."`
}

// Train is the section train.
type Train struct {
	Objective        Objective `json:"objective" doc:"The loss. The default is REINFORCE with Score Centering."`
	LearningRate     float64   `json:"learning_rate" doc:"AdamW learning rate, constant."`
	Beta1            float64   `json:"beta1" doc:"AdamW decay of the first moment."`
	Beta2            float64   `json:"beta2" doc:"AdamW decay of the second moment."`
	Epsilon          float64   `json:"epsilon" doc:"AdamW epsilon, added to the root of the second moment."`
	WeightDecay      float64   `json:"weight_decay" doc:"AdamW decoupled weight decay."`
	ClipNorm         float64   `json:"clip_norm" doc:"Largest global gradient norm; 0 turns clipping off."`
	MicroBatchTokens int       `json:"micro_batch_tokens" doc:"Most tokens of trajectories in one forward and backward pass; a longer trajectory is a pass of its own. Changes the order of sums."`
}

// Objective is the section train.objective.
type Objective struct {
	Centering string  `json:"centering" doc:"proportional (Score Centering from the top-k record), full (record of the whole vocabulary) or off (REINFORCE)."`
	Rule      string  `json:"rule" doc:"Importance weight of a token: none, tis (ratio cut at cap) or band (ratio inside lo..hi, else 0)."`
	Cap       float64 `json:"cap" doc:"Largest ratio of rule tis."`
	Lo        float64 `json:"lo" doc:"Smallest ratio of rule band."`
	Hi        float64 `json:"hi" doc:"Largest ratio of rule band."`
}

// Retention is the section retention.
type Retention struct {
	Checkpoints    int `json:"checkpoints" doc:"Newest verified checkpoints that are kept."`
	MilestoneEvery int `json:"milestone_every" doc:"Keep checkpoints at multiples of this step for ever; 0 for none."`
}

// Export is the section export.
type Export struct {
	ShardSize Bytes `json:"shard_size" doc:"Largest safetensors file."`
}

// Timeouts is the section timeouts.
type Timeouts struct {
	Control     Duration `json:"control" doc:"Small activities, start to close."`
	Shard       Duration `json:"shard" doc:"Filtering of one data shard, start to close."`
	Rollout     Duration `json:"rollout" doc:"Generation of one group or chunk, start to close."`
	Judge       Duration `json:"judge" doc:"Judging of one group or chunk, start to close."`
	Update      Duration `json:"update" doc:"An update, restore and replay included, start to close."`
	Export      Duration `json:"export" doc:"An export, start to close."`
	Heartbeat   Duration `json:"heartbeat" doc:"Longest silence of an activity before it is taken for dead."`
	TrainerLost Duration `json:"trainer_lost" doc:"How long work may wait on an acquired trainer's queue before another trainer is acquired."`
	Stall       Duration `json:"stall" doc:"Longest time without any progress: an engine or judge that gives no token or verdict fails its activity; a group without a report is asked about, and named if it stands still."`
	ClosedCheck Duration `json:"closed_check" doc:"How often a group asks whether its run is still open."`
}
