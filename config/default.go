package config

import "time"

// Default returns the defaults of every key. They are those of the published Score-Centering run, on the CPU
// engine; model.path, data.shards and run.steps have to be given by a recipe or a file.
func Default() *Config {
	return &Config{
		Mode:   "async",
		Run:    Run{Seed: 42, ValidateEvery: 25, CheckpointEvery: 50, ContinueEvery: 25},
		Engine: Engine{Backend: "cpu", MaxSequences: 64, TrainerRanks: 1},
		Data:   Data{Shards: []string{}, Train: 2000, Dev: 256, SolutionTries: 10},
		Rollout: Rollout{
			GroupSize: 4, BatchProblems: 16, Prefill: 2, StalenessThreshold: 4, StalenessPolicy: "drop",
			FaultWindow: 4, FaultShare: 0.5, FaultAction: "pause",
			MaxTurns: 6, MaxCallsPerTurn: 1, MaxPrompt: 4096, MaxResponse: 8192, MaxTotal: 12288,
			ToolOutputLimit: 4096, Temperature: 1, Precision: "fp32", TopKRecord: 128,
			FlushInterval: Duration(2 * time.Second), Thinking: true,
		},
		Validation: Validation{Temperature: 0.6, Chunk: 16},
		Sandbox: Sandbox{
			TimeLimit: Duration(3 * time.Second), Memory: 1 << 30, OutputLimit: 1 << 20,
			JudgeBudget: Duration(90 * time.Second),
		},
		Train: Train{
			Objective:    Objective{Centering: "proportional", Rule: "none", Cap: 2, Lo: 0.5, Hi: 5},
			LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1, MicroBatchTokens: 16384,
		},
		Retention: Retention{Checkpoints: 2},
		Export:    Export{ShardSize: 5_000_000_000},
		Timeouts: Timeouts{
			Control: Duration(time.Minute), Shard: Duration(6 * time.Hour), Rollout: Duration(2 * time.Hour),
			Judge: Duration(time.Hour), Update: Duration(4 * time.Hour), Export: Duration(2 * time.Hour),
			Heartbeat: Duration(30 * time.Second), TrainerLost: Duration(time.Minute),
			Stall: Duration(10 * time.Minute), ClosedCheck: Duration(30 * time.Second),
		},
	}
}
