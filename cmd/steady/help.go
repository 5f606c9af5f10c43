package main

// The long texts of --help: what a command reads and writes, an example or more, its exit status. TestHelp_teachesEveryCommand parses each example.

// Help is shown by --help, below the first line.
func (demoCmd) Help() string {
	return `Builds everything that a run needs in one process on this machine and trains the bundled model on the bundled problems, in minutes and without a GPU. The same command goes on where an interrupted or killed one stopped.

  steady demo
  steady demo --fresh --set run.seed=7
  steady demo --keep --data DIR --port 7300 --ui-port 8300

Reads: the configuration (recipe demo, -f, --set). Writes: artifacts, the server's database and logs below --data; the report at --report. docs/getting-started.md explains what it prints.

Exit status: 0 accuracy rose and the books balance, 1 the run failed or accuracy did not rise, 2 usage or configuration, 4 interrupted, 5 the ledger does not balance or a replayed step had other bits.`
}

// Help is shown by --help, below the first line.
func (devCmd) Help() string {
	return `Serves runs that are started with the temporal command line, until Ctrl-C. Open runs go on at the next start, also after kill -9.

  steady dev
  steady dev --data DIR --port 7300 --ui-port 8300

Reads and writes: artifacts, the server's database and logs below --data. The server listens on the loopback address and has no authentication. docs/getting-started.md starts a run with it.

Exit status: 0 interrupted, which is its ordinary end, 1 the server ended and could not be restarted, 2 usage, or a port or directory that is in use.`
}

// Help is shown by --help, below the first line.
func (workerCmd) Help() string {
	return `Serves some roles of a run against a Temporal server of your own, until Ctrl-C or SIGTERM. Several workers share one artifact store. The connection follows TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_TLS_*, TEMPORAL_API_KEY or a profile.

Everything but training on one machine, the trainer on another:
  steady worker --roles control,data,rollout,judge --data SHARED
  steady worker --roles trainer --name trainer-1 --data SHARED

One GPU of several, with the program that has the GPU engine:
  steady-cuda worker --engine cuda --roles rollout --device GPU --data SHARED

Reads and writes: the artifact store in --data. Prints its log. docs/operations.md says which roles a run needs.

Exit status: 0 interrupted, which is its ordinary end, 1 a role cannot be served or its GPU failed, 2 usage, 3 Temporal cannot be reached.`
}

// Help is shown by --help, below the first line.
func (configPrintCmd) Help() string {
	return `Lays the configuration together from defaults, recipe, files and assignments, and prints it. The YAML is valid input of -f again; the JSON is the input of the workflow TrainRun.

  steady config print --recipe demo
  steady config print --recipe demo -f my.yaml --set run.steps=50 --json

Reads: the files of -f. Writes nothing but its output. What only keeps this program from running the configuration is a warning. docs/config.md lists the keys.

Exit status: 0 printed, 2 a key is unknown, a value is wrong, or a file cannot be read; every mistake is listed.`
}

// Help is shown by --help, below the first line.
func (configValidateCmd) Help() string {
	return `Says whether this program could run the configuration, and everything that is wrong with it.

  steady config validate --recipe demo --set run.steps=50
  steady config validate -f my.yaml

Reads: the files of -f. Writes nothing but its output. Files that the configuration names are looked for when a run starts, not here.

Exit status: 0 valid, 2 not valid; every mistake is listed.`
}

// Help is shown by --help, below the first line.
func (configRecipesCmd) Help() string {
	return `A recipe is a configuration that others build on: name it with --recipe, or with the key recipe in a file.

  steady config recipes

Reads nothing, writes nothing but its output.

Exit status: 0.`
}

// Help is shown by --help, below the first line.
func (doctorCmd) Help() string {
	return `Looks at processor, memory, disk, ports, the temporal program, Python and the sandbox (steady-cuda: also driver, GPUs and NVIDIA's libraries). Each line is ok, warn or fail; a line with "try:" says what to do. It changes nothing.

  steady doctor
  steady doctor --data DIR --python /usr/bin/python3 --json

Reads: this machine; runs a small program in the sandbox. Writes nothing but its output.

Exit status: 0 a run can work here, perhaps with warnings, 1 something that a run needs is missing, 2 usage.`
}

// Help is shown by --help, below the first line.
func (benchEngineCmd) Help() string {
	return `Measures rates with random weights, with the limit of the hardware beside them where one is known. Let nothing else run on the machine.

  steady bench engine
  steady-cuda bench engine --engine cuda --model 4B --json

Reads nothing, writes nothing but its output; steady-cuda keeps compiled kernels in the user's cache directory.

Exit status: 0 measured, 1 the engine failed, 2 usage, or this program has no GPU engine.`
}

// Help is shown by --help, below the first line.
func (benchStepCmd) Help() string {
	return `Takes one optimizer step from the weights of a model directory, with zero moments, and writes everything that comes of it. scripts/compare-engine-hf makes the input and compares the output with the Hugging Face library and PyTorch.

  steady bench step --model DIR --batch FILE --out DIR
  steady-cuda bench step --engine cuda --model DIR --batch FILE --out DIR

Reads: config.json and the weights of the model; the batch, an object of JSON: "sequences", each with "tokens", "mask" (true where a token is trained), "log_probs" of the sampler, its record "top_ids" and "top_log_probs" ("top_k" for each token), "advantage" and "temperature"; "objective", "optim" and "plan" as in a sealed batch of a run.

Writes: results.json with the log-probability of every token by the sampler, its most probable next tokens, and the metrics of the update; the folder state, a checkpoint: master.safetensors, adam_m.safetensors, adam_v.safetensors.

Exit status: 0 computed, 1 the engine failed, 2 usage, or a batch or model that cannot be trained.`
}

// Help is shown by --help, below the first line.
func (sandboxRunCmd) Help() string {
	return `Runs one Python program as the judge would: no network, no files but its own, limits of time, memory and output.

  steady sandbox run program.py --stdin input.txt
  steady sandbox run program.py --json

Reads: the program and --stdin. Writes nothing but what the program printed, and one line about how it ended. docs/security.md says what the sandbox keeps away.

Exit status: 0 whatever the program did, 1 the sandbox failed, 2 usage, or a file that cannot be read.`
}

// Help is shown by --help, below the first line.
func (judgeCmd) Help() string {
	return `Judges each response of a file by its tests and prints a verdict a line, in the order of the file. Training and evaluations judge by the same code.

  steady judge --cases cases.jsonl

A line of the file:
  {"id": "a", "response_text": "...", "tests": [{"input": "1 2\n", "output": "3\n"}]}

Reads: --cases, whole, before the first program runs. Writes nothing but its output.

Exit status: 0 whatever the verdicts are, 1 the sandbox failed, 2 a mistake in the file; all are listed with line and field.`
}

// Help is shown by --help, below the first line.
func (datasetPrepareCmd) Help() string {
	return `Filters Parquet shards, runs reference solutions, removes duplicates and splits: the same work as in a run. The same command goes on after an interruption or a kill. docs/data.md has the rules; for problems of your own begin with steady dataset convert.

  steady dataset prepare --shards A.parquet,B.parquet --tokenizer MODEL --out SET
  steady dataset prepare --shards A.parquet --exclude known.jsonl --lcb LCB --tokenizer MODEL --train 500 --dev 100 --out SET

Reads: the shards, --exclude, --lcb, the tokenizer.json in --tokenizer. Writes: --out, whole or not at all; unfinished work in OUT.work.

Exit status: 0 done, also with fewer problems than asked for (a warning says so), 1 the sandbox failed (start again to go on), 2 usage or unreadable input, 4 interrupted, 5 a file is not as it was written.`
}

// Help is shown by --help, below the first line.
func (datasetConvertCmd) Help() string {
	return `Turns problems of your own into a Parquet shard that steady dataset prepare and data.shards read. A line of the input is one problem:

  {"id": "sum", "statement": "Read two integers and print their sum.", "tests": [{"input": "1 2\n", "output": "3\n"}], "solutions": ["print(sum(map(int, input().split())))"]}

  steady dataset convert --in problems.jsonl --out problems.parquet

solutions may be missing or empty: steady eval needs none, a run does. Optional, and text: title, source, url, difficulty, date. No other key is known. docs/your-own.md goes on from here.

Reads: --in. Writes: --out, whole or not at all; the same lines give the same bytes.

Exit status: 0 written, 2 a mistake in the file (bad lines are listed with their fields, the first 20 of them, and counted) or a place that cannot be written.`
}

// Help is shown by --help, below the first line.
func (datasetDecisionsCmd) Help() string {
	return `Prints for every input row of a prepared data set whether it was kept, the rule that dropped it, and what the rule saw.

  steady dataset decisions SET
  steady dataset decisions SET --jsonl

Reads: the data set. Writes nothing but its output.

Exit status: 0 printed, 2 there is no prepared data set, 5 a file is not as it was written.`
}

// Help is shown by --help, below the first line.
func (datasetShowCmd) Help() string {
	return `Prints one problem of a prepared data set as the policy and the judge know it, or why its row was dropped.

  steady dataset show SET taco-demo-00000-of-00001/00003
  steady dataset show SET taco-demo-00000-of-00001/00003 --tests --json

Reads: the data set. Writes nothing but its output.

Exit status: 0 printed, 2 there is no such row or data set, 5 a file is not as it was written.`
}

// Help is shown by --help, below the first line.
func (datasetCheckCmd) Help() string {
	return `Verifies a prepared data set: digests, counts, disjoint splits, prompts without tests or solutions.

  steady dataset check SET
  steady dataset check SET --shards A.parquet,B.parquet

Reads: the data set, and with --shards its input. Writes nothing but its output.

Exit status: 0 all holds, 2 there is no prepared data set, 5 something does not hold; it is named.`
}

// Help is shown by --help, below the first line.
func (datasetLCBCmd) Help() string {
	return `Prints the identities of LiveCodeBench's problems as JSON Lines, for --exclude and the key data.exclude; with --tests it reads every saved test and counts them.

  steady dataset lcb LCB
  steady dataset lcb LCB --tests

Reads: test.jsonl to test6.jsonl of livecodebench/code_generation_lite in LCB. Writes nothing but its output; a missing file is a warning.

Exit status: 0 done, 2 there is no such directory, 5 a line cannot be read.`
}

// Help is shown by --help, below the first line.
func (datasetProblemsCmd) Help() string {
	return `Prints a line for each problem that an evaluation would use of these files, and the reason for each row that it would not.

  steady dataset problems --format taco A.parquet B.parquet
  steady dataset problems --format jsonl problems.jsonl
  steady dataset problems --format deepcoder --recipe-bounds lcbv5/test-00000-of-00001.parquet
  steady dataset problems --format lcb --from 2024-08-01 --until 2025-02-01 LCB --jsonl

Reads: the files. Writes nothing but its output.

Exit status: 0 all was read, also with rows that cannot be used, 2 a file is missing or has mistakes, 5 a file is damaged.`
}

// Help is shown by --help, below the first line.
func (datasetFunnelCmd) Help() string {
	return `Prints how many rows each rule dropped and how many are left after it, or draws it.

  steady dataset funnel SET
  steady dataset funnel SET --svg funnel.svg

Reads: the data set. Writes: the file of --svg, else nothing but its output.

Exit status: 0 done, 2 there is no prepared data set or the file cannot be written, 5 a file is not as it was written.`
}

// Help is shown by --help, below the first line.
func (evalRunCmd) Help() string { return evalCmd{}.Help() }

// Help is shown by --help, below the first line.
func (evalCompareCmd) Help() string {
	return `Compares two finished evaluations of the same problems, problem by problem, with an interval of the difference: the second minus the first. Settings in which they differ are named.

  steady eval compare A/eval.json B/eval.json
  steady eval compare A/eval.json B/eval.json --json

Reads: the two files. Writes nothing but its output.

Exit status: 0 compared, 2 the files cannot be compared or read.`
}

// Help is shown by --help, below the first line.
func (pretrainCmd) Help() string {
	return `Makes the model that the demo begins with again, bit for bit, or a larger one for a GPU. It knows the form of an answer and part of the task.

  steady pretrain --out MODEL
  steady pretrain --short 4 --full 4 --out TRY
  steady-cuda pretrain --size larger --engine cuda --out MODEL

Reads nothing: the corpus is generated. Writes: a model in Hugging Face layout in --out.

Exit status: 0 written, 1 the engine failed, 2 usage, 4 interrupted; it begins again.`
}

// Help is shown by --help, below the first line.
func (tokenizeCmd) Help() string {
	return `Prints for each line {"text": "..."} the ids with special tokens recognised (ids), and those of the text as something that nobody vouches for (ids_plain).

  steady tokenize --tokenizer MODEL texts.jsonl

Reads: the tokenizer.json in --tokenizer, the file, or standard input with "-". Writes nothing but its output, a line for each line.

Exit status: 0 done, 2 a tokenizer or a line that cannot be used; it is named.`
}

// Help is shown by --help, below the first line.
func (detokenizeCmd) Help() string {
	return `Prints for each line {"ids": [1, 2], "skip_special_tokens": false} the text.

  steady detokenize --tokenizer MODEL ids.jsonl

Reads: the tokenizer.json in --tokenizer, the file, or standard input with "-". Writes nothing but its output, a line for each line.

Exit status: 0 done, 2 a tokenizer or a line that cannot be used; it is named.`
}

// Help is shown by --help, below the first line.
func (chatRenderCmd) Help() string {
	return `Prints for each conversation its text by Qwen3's chat template, and the ids. A line of the input:

  {"messages": [{"role": "user", "content": "Hi"}], "tools": null, "add_generation_prompt": true, "enable_thinking": null}

  steady chat render --tokenizer MODEL conversations.jsonl
  steady chat render --tokenizer MODEL --untrusted conversations.jsonl

Reads: the tokenizer.json and, if there is one, the chat template in --tokenizer; the file, or standard input with "-". Writes nothing but its output, a line for each line.

Exit status: 0 done, 2 a tokenizer, template or line that cannot be used; it is named.`
}

// Help is shown by --help, below the first line.
func (trajectoryShowCmd) Help() string {
	return `Prints one trajectory of a run: prompt, turns, calls of the tool with their answers, verdict, reward, and the policy versions that sampled it.

  steady trajectory show RUN --group 12 --sample 0
  steady trajectory show RUN --validation 000025 --problem 7
  steady trajectory show RUN --group 12 --format json --tokens

Reads: the artifact store in --data. Writes nothing but its output. docs/trajectories.md explains what it shows.

Exit status: 0 printed, 2 there is no such trajectory, run or store, 5 a file is damaged.`
}

// Help is shown by --help, below the first line.
func (trajectoryExportCmd) Help() string {
	return `Writes many trajectories of a run as JSON Lines, in the order of their groups.

  steady trajectory export RUN --step 3 --out step3.jsonl
  steady trajectory export RUN --validation export
  steady trajectory export RUN --tokens --out all.jsonl

Reads: the artifact store in --data. Writes: the file of --out, else its output.

Exit status: 0 written, 2 there is no such group, step, run or store, or the file cannot be written, 5 a file is damaged.`
}

// Help is shown by --help, below the first line.
func (verifyExportCmd) Help() string {
	return `Compares each file and each tensor of an exported model with its certificate, and runs the recorded probe again.

  steady verify-export STORE/runs/RUN/l0/export

Reads: the directory of the export. Writes nothing but its output.

Exit status: 0 it is what the run exported, 2 there is no export, 5 it differs; the file or tensor is named.`
}

// Help is shown by --help, below the first line.
func (reportCmd) Help() string {
	return `Writes the page of a run, finished or not: dev table, curves, samples, failures and recoveries, ledger, export. It needs no other file and no network. docs/understanding-metrics.md says how to read it.

  steady report RUN
  steady report RUN --data DIR --lineage l0 --out RUN.html

Reads: the artifact store in --data. Writes: the page at --out, and a summary to the terminal.

Exit status: 0 written, 2 there is no such run or store, or the page cannot be written, 5 a record is damaged.`
}

// Help is shown by --help, below the first line.
func (ledgerCmd) Help() string {
	return `Prints what became of the groups of a run: submitted, trained, dropped by reason, open; and how long those of each fate are. It checks that each group has one fate.

  steady ledger RUN
  steady ledger RUN --lineage l0 --json

Reads: the artifact store in --data. Writes nothing but its output.

Exit status: 0 the books balance, 2 there is no such run or store, 5 they do not balance or a record is damaged.`
}

// Help is shown by --help, below the first line.
func (versionCmd) Help() string {
	return `Prints the version, or the revision that the program was built from. Workers of one run should print the same.

  steady version

Reads nothing, writes nothing but its output.

Exit status: 0.`
}

// Help is shown by --help, below the first line.
func (studyRunCmd) Help() string {
	return `Runs every arm of a study with every seed, in one process as steady demo does, and compares them. The same command goes on where an interrupted one stopped; a run that has a result is never made again.

  steady study study-staleness --quick
  steady study my-study.yaml --parallel 2 --out results

Reads: the definition, and the store below --data. Writes: runs below --data; study.md, study.svg, study.csv and study-problems.csv in --out. docs/studies.md has the form of a file and says how to read the table.

Exit status: 0 all runs ended and every gate holds, 1 a run has no result or a gate does not hold, 2 usage or a mistake in the study (all are listed), 4 interrupted.`
}

// Help is shown by --help, below the first line.
func (studyShowCmd) Help() string {
	return `Prints the definition of a study: as it is written, or with --json as the input of the workflow Study.

  steady study show study-staleness
  steady study show my-study.yaml --quick --json

Reads: the file, or with --of the store in --data. Writes nothing but its output.

Exit status: 0 printed, 2 there is no such study, or it has a mistake.`
}

// Help is shown by --help, below the first line.
func (studyReportCmd) Help() string {
	return `Writes table and picture of a study again, finished or not.

  steady study report study-staleness-quick --out results

Reads: the records of the study and its runs in the store of --data. Writes: study.md, study.svg, study.csv and study-problems.csv in --out.

Exit status: 0 written, 2 there is no such study or the directory cannot be written, 5 a record is damaged.`
}

// Help is shown by --help, below the first line.
func (studyListCmd) Help() string {
	return `Lists the bundled studies; steady study show prints one.

  steady study list

Reads nothing, writes nothing but its output.

Exit status: 0.`
}

// Help is shown by --help, below the first line.
func (watchCmd) Help() string {
	return `Shows a run while it runs: step, rates, accuracy, lag, drops by reason, faults and time left, redrawn in place on a terminal, a line for each change elsewhere. With --http it serves pages of all runs in a store instead: reports, trajectories token by token, ledger, failures, comparisons.

  steady watch r1
  steady watch r1 --once --json
  steady watch --http 127.0.0.1:8234 --data DIR

Reads: the artifact store, and the Temporal server if it answers. Writes nothing but its output. docs/live.md explains the pages.

Exit status: 0 the run has ended well, 1 it failed or was cancelled, 2 usage or no such run, 4 interrupted.`
}

// Help is shown by --help, below the first line.
func (metricsExportCmd) Help() string {
	return `Writes a row for every step of a run, and its validations, for other programs. Equal runs give equal bytes. After a rollback the rows are those that led to the newest lineage.

  steady metrics export r1 --out steps.csv
  steady metrics export r1 --format parquet --out steps.parquet
  steady metrics export r1 --format tensorboard --out DIR

Reads: the records of the run in the artifact store. Writes: --out, which is replaced. docs/metrics.md explains the columns.

Exit status: 0 written, 2 no such run, or a place that cannot be written, 5 a record is damaged.`
}

// Help is shown by --help, below the first line.
func (metricsColumnsCmd) Help() string {
	return `Prints the columns of an export: name, type and meaning.

  steady metrics columns

Reads nothing. Writes nothing but its output.

Exit status: 0.`
}
