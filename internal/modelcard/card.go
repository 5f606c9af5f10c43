package modelcard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/weights"
)

// File is the name of a card in an export.
const File = "README.md"

// Make returns the card of the export of a step. base is the directory with the base model's files.
//
// Errors: NotFound (no such run), Corrupt (its record or its configuration is damaged), Busy (the store). Other records that cannot be read are named in
// the card's limits.
func Make(ctx context.Context, s artifact.Store, l record.Layout, step int, base string) ([]byte, error) {
	f, err := gather(ctx, s, l, step, base)
	if err != nil {
		return nil, err
	}
	c := &card{facts: f, base: baseOf(f, base)}
	c.front()
	c.head()
	c.results()
	c.data()
	c.method()
	c.books()
	c.limits()
	c.reproduce()
	return []byte(strings.TrimRight(c.String(), "\n") + "\n"), nil
}

// card is a page as it grows.
type card struct {
	strings.Builder
	*facts
	base origin
}

// origin is the base model.
type origin struct {
	hub  string // its name on the model hub; empty: not known
	name string // for people
}

// baseOf names the base model: a published one where both the directory's name and the sizes in config.json are its own.
func baseOf(f *facts, dir string) origin {
	name := shorten(strings.TrimRight(f.run.BaseModel, "/"))
	if name == "bundled" {
		return origin{name: "the small demonstration model that is part of steady"}
	}
	size, err := plan.SizeNamed(name)
	if m, cerr := weights.LoadConfig(dir); err == nil && cerr == nil && strings.HasPrefix(name, "Qwen3-") && m == size.Model {
		return origin{hub: "Qwen/" + name, name: "Qwen/" + name + " (by the name of its directory and the sizes in its config.json)"}
	}
	return origin{name: name}
}

// hub names the data set on the model hub, where the path of the files does.
func (c *card) hub() string {
	for _, s := range c.shards {
		if !slices.Contains(strings.Split(s, "/"), "TACO") {
			return ""
		}
	}
	if len(c.shards) == 0 {
		return ""
	}
	return "BAAI/TACO"
}

func (c *card) line(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// quote writes a YAML scalar; JSON's strings are YAML's.
func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil { // a string always has a JSON form
		panic(err)
	}
	return string(data)
}

// cell makes text safe in a table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ", "<", "&lt;", "`", "'").Replace(s)
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }

func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

func interval(e eval.Estimate) string {
	part := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) }
	return fmt.Sprintf("%s [%s, %s]", part(e.Value), part(e.Low), part(e.High))
}

// front is the part that model hubs read.
func (c *card) front() {
	c.line("---")
	c.line("license: %s", c.license)
	if c.base.hub != "" {
		c.line("base_model: %s", c.base.hub)
		c.line("base_model_relation: finetune")
	}
	c.line("library_name: transformers")
	c.line("pipeline_tag: text-generation")
	c.line("language:\n- en")
	if hub := c.hub(); hub != "" {
		c.line("datasets:\n- %s", hub)
	}
	c.line("tags:\n- code\n- reinforcement-learning\n- steady")
	if len(c.rows) > 0 {
		last := c.rows[len(c.rows)-1]
		if acc, pass, ok := shares(last); ok && last.Version == c.step {
			kind := c.hub()
			if kind == "" {
				kind = "steady-generated"
			}
			c.line("metrics:\n- accuracy")
			c.line("model-index:\n- name: %s\n  results:\n  - task:\n      type: text-generation\n      name: Python programs from statements", quote(c.layout.Run))
			c.line("    dataset:\n      type: %s\n      name: %s\n      split: dev", kind, quote(fmt.Sprintf("dev problems of the run, %d", len(last.Items))))
			c.line("    metrics:")
			for _, m := range []struct {
				kind, name string
				value      eval.Estimate
			}{
				{"accuracy", "problems with all tests passed, one response each", acc},
				{"pass_rate", "mean share of passed tests, one response each", pass},
			} {
				c.line("    - type: %s\n      name: %s\n      value: %s", m.kind, quote(fmt.Sprintf("%s, 95 %% interval %s to %s", m.name,
					strconv.FormatFloat(m.value.Low, 'f', 4, 64), strconv.FormatFloat(m.value.High, 'f', 4, 64))), strconv.FormatFloat(m.value.Value, 'f', 6, 64))
			}
		}
	}
	c.line("---\n")
}

func (c *card) head() {
	c.line("# %s, step %d\n", cell(c.layout.Run), c.step)
	c.line("A model that writes Python programs: %s, trained further by reinforcement learning with", cell(c.base.name))
	c.line("[steady](https://github.com/steadyrl/steady); the reward is the share of passed tests. Weights are BF16, and each tensor was compared with the float32")
	c.line("checkpoint that it was rounded from: `certificate.json` holds the digest of every file, this page included. This page was written by the export from the")
	c.line("records of the run.\n")
	if p := c.run.Parent; p != nil {
		c.line("The lineage `%s` of the run begins with step %d of `%s/%s`; what was before is in the records of that one.\n", c.layout.Lineage, p.Step, cell(p.Run), p.Lineage)
	}
	if planned := c.values["run.steps"]; planned != strconv.Itoa(c.step) {
		c.line("The run was planned for %s steps and ended after step %d.\n", planned, c.step)
	}
	c.line("```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained(DIRECTORY)")
	c.line("model = AutoModelForCausalLM.from_pretrained(DIRECTORY, dtype=\"auto\")\n```\n")
	c.line("Licence: `%s`; %s.\n", c.license, c.notice)
}

func (c *card) results() {
	c.line("## Results\n")
	if len(c.rows) == 0 {
		c.line("No validation is recorded.\n")
		return
	}
	c.line("All validations of the lineage up to the exported step: %s dev problems, one response each, temperature %s. Percent, with 95 %% intervals over problems",
		strconv.Itoa(len(c.rows[0].Items)), c.values["validation.temperature"])
	c.line("(Wilson's for `acc`). `acc`: all tests passed. `pass_rate`: mean share of passed tests. `format_ok`: a closed code block could be read. `tool`: problems in")
	c.line("which a program of the tool ran. `cut`: responses at the length limit.\n")
	c.line("| step | solved | acc | pass_rate | format_ok | tool | cut |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, v := range c.rows {
		acc, pass, ok := shares(v)
		if !ok {
			c.line("| %d | not recorded by problem | %s | %s | %s | %d | %d |", v.Version, percent(v.Metrics.Acc), percent(v.Metrics.PassRate), percent(v.Metrics.FormatOK),
				v.Metrics.ToolUsed, v.Metrics.LengthCut)
			continue
		}
		c.line("| %d | %d/%d | %s | %s | %s | %d | %d |", v.Version, v.Metrics.Solved, v.Problems, interval(acc), interval(pass), percent(v.Metrics.FormatOK),
			v.Metrics.ToolUsed, v.Metrics.LengthCut)
	}
	c.line("")
	if e, ok := change(c.rows); ok {
		c.line("From step %d to step %d, problem by problem: %+.2f points of `acc`, 95 %% interval %+.2f to %+.2f.\n", c.rows[0].Version, c.rows[len(c.rows)-1].Version,
			100*e.Value, 100*e.Low, 100*e.High)
	}
	c.line("After the export the same problems were run again from these files; that row is in the report of the run.\n")
}

// change is the paired difference of the first and the last validation.
func change(rows []record.Validation) (eval.Estimate, bool) {
	if len(rows) < 2 {
		return eval.Estimate{}, false
	}
	solved := func(it record.DevItem) float64 {
		if it.Total > 0 && it.Passed == it.Total {
			return 1
		}
		return 0
	}
	before := map[string]float64{}
	for _, it := range rows[0].Items {
		before[it.Problem] = solved(it)
	}
	var d []float64
	for _, it := range rows[len(rows)-1].Items {
		was, ok := before[it.Problem]
		if !ok {
			return eval.Estimate{}, false
		}
		d = append(d, solved(it)-was)
	}
	if len(d) == 0 || len(d) != len(before) {
		return eval.Estimate{}, false
	}
	return eval.Difference(d), true
}

func (c *card) data() {
	c.line("## Data\n")
	m := c.manifest
	if m == nil {
		c.line("The manifest of the data set is not recorded.\n")
		return
	}
	if hub := c.hub(); hub != "" {
		c.line("From %s, by the path of the files; the digests below say which revision it was.\n", hub)
	}
	c.line("%d rows were read, %d passed all rules, %d were used for training and %d as dev problems, disjoint by text, address and platform identity. Every one of",
		m.Rows, m.Good, m.Train, m.Dev)
	c.line("them has a reference solution that passes all of its tests in the sandboxed judge. %d identities were excluded (problems that an evaluation knows).\n", m.Exclusions)
	c.line("| outcome of the filter, in the order of its rules | rows |\n| --- | ---: |")
	for _, r := range m.Reasons {
		c.line("| %s | %d |", cell(r.Name), r.Rows)
	}
	c.line("\n| file | rows | SHA-256 |\n| --- | ---: | --- |")
	for _, in := range m.Inputs {
		c.line("| %s | %d | `%s` |", cell(shorten(in.Name)), in.Rows, cell(in.SHA256))
	}
	c.line("\nRules version %d, seed %d, key `%s`.", m.RulesVersion, m.Seed, cell(c.dataKey))
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m.Settings)) {
		parts = append(parts, k+" "+shorten(m.Settings[k]))
	}
	if len(parts) > 0 {
		c.line("Settings: %s.", cell(strings.Join(parts, ", ")))
	}
	c.line("")
}

func (c *card) method() {
	c.line("## Method\n")
	c.line("%s\n", c.objective())
	rates := c.rates()
	if len(rates) > 1 {
		c.line("The learning rate was changed while the run was open: %s.\n", strings.Join(rates, ", "))
	}
	if mean, most, ok := c.lag(); ok {
		c.line("Staleness: mode %s, policy `%s`, threshold %s. Trained tokens lagged %s versions in the mean over steps, %s at most.\n", c.values["mode"],
			c.values["rollout.staleness_policy"], c.values["rollout.staleness_threshold"], number(mean), number(most))
	}
	c.progress()
	c.line("All settings that decide about the model (paths of the machine, time-outs and retention are left out):\n")
	c.line("| key | value |\n| --- | --- |")
	for _, s := range c.settings {
		c.line("| `%s` | %s |", cell(s.key), cell(s.value))
	}
	c.line("")
}

// objective says in words what the update maximises.
func (c *card) objective() string {
	v := c.values
	text := fmt.Sprintf("REINFORCE with %s responses to a problem; the advantage is the reward less the mean of the group, not divided by its deviation.", v["rollout.group_size"])
	switch v["train.objective.centering"] {
	case "proportional":
		text += fmt.Sprintf(" Score Centering from the sampler's %s most probable tokens (proportional).", v["rollout.top_k_record"])
	case "full":
		text += " Score Centering from records of the whole vocabulary (full)."
	case "off":
		text += " Without Score Centering."
	}
	switch v["train.objective.rule"] {
	case "none":
		text += " No importance weights."
	case "tis":
		text += fmt.Sprintf(" Importance weights cut at %s.", v["train.objective.cap"])
	case "band":
		text += fmt.Sprintf(" Importance weights inside %s to %s, else 0.", v["train.objective.lo"], v["train.objective.hi"])
	}
	return text + fmt.Sprintf(" The loss is the mean over the sampled tokens of a batch of %s problems; prompts and tool outputs do not enter it. No critic, no penalty to the base"+
		" model, no entropy bonus. AdamW, learning rate %s%s, gradient norm cut at %s.", v["rollout.batch_problems"], v["train.learning_rate"],
		map[bool]string{true: " at first", false: ", constant"}[len(c.rates()) > 1], v["train.clip_norm"])
}

// rates are the learning rates of the sealed batches, each with the step from which it held.
func (c *card) rates() []string {
	var out []string
	last := math.NaN()
	for _, s := range c.seals {
		if r := s.batch.Optim.LearningRate; r != last {
			out = append(out, fmt.Sprintf("%s from step %d", number(r), s.step))
			last = r
		}
	}
	return out
}

// lag is the mean over steps of the mean lag, and the largest.
func (c *card) lag() (mean, most float64, ok bool) {
	n := 0
	for _, s := range c.seals {
		if m := s.batch.Rollout.LagMean; m != nil {
			mean, n = mean+*m, n+1
		}
		if m := s.batch.Rollout.LagMax; m != nil {
			most = max(most, *m)
		}
	}
	return mean / float64(max(n, 1)), most, n > 0
}

// progress compares the first and the last steps.
func (c *card) progress() {
	if len(c.seals) == 0 {
		return
	}
	trajectories, tokens := 0, 0
	for _, s := range c.seals {
		for _, x := range s.batch.Samples {
			trajectories, tokens = trajectories+1, tokens+x.Sampled
		}
	}
	c.line("Steps %d to %d trained %d trajectories with %d sampled tokens.\n", c.seals[0].step, c.seals[len(c.seals)-1].step, trajectories, tokens)
	n := max(1, min(10, len(c.seals)/2))
	first, last := c.seals[:n], c.seals[len(c.seals)-n:]
	c.line("| mean over steps | first %d | last %d |\n| --- | ---: | ---: |", n, n)
	for _, m := range []struct {
		name string
		of   func(sealed) *float64
	}{
		{"reward", func(s sealed) *float64 { return s.batch.Rollout.RewardMean }},
		{"share of groups whose rewards are all equal", func(s sealed) *float64 { return s.batch.Rollout.ZeroSpreadShare }},
		{"response, tokens", func(s sealed) *float64 { return s.batch.Rollout.ResponseTokens }},
		{"share cut at the length limit", func(s sealed) *float64 { return s.batch.Rollout.LengthCutShare }},
		{"share without a submission that can be judged", func(s sealed) *float64 { return s.batch.Rollout.UnjudgeableRate }},
		{"share that ran the tool", func(s sealed) *float64 { return s.batch.Rollout.ToolShare }},
		{"gap of log-probabilities between trainer and sampler, nats", func(s sealed) *float64 { return s.gap }},
	} {
		c.line("| %s | %s | %s |", m.name, meanOf(first, m.of), meanOf(last, m.of))
	}
	c.line("")
}

func meanOf(steps []sealed, of func(sealed) *float64) string {
	sum, n := 0.0, 0
	for _, s := range steps {
		if v := of(s); v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return "not recorded"
	}
	return number(sum / float64(n))
}

func (c *card) books() {
	c.line("## Faults and drops\n")
	if c.ledger == nil {
		c.line("The ledger is not recorded.\n")
	} else {
		n := c.ledger.Count()
		balance := "the ledger balances"
		if err := c.ledger.Balance(); err != nil {
			balance = "the ledger does NOT balance: " + cell(err.Error())
		}
		c.line("Groups of responses: %d submitted, %d trained once, %d dropped, %d open when the run ended; %s. A group that met an infrastructure fault is dropped whole and",
			n.Submitted, n.Trained, n.Dropped, n.Open, balance)
		c.line("never rewarded; its problem is taken again (%d times). %d sampled tokens were dropped.\n", n.Resubmitted, n.LostTokens)
		if len(n.Reasons) > 0 {
			c.line("| reason of a drop | groups | of these finished | sampled tokens |\n| --- | ---: | ---: | ---: |")
			for _, r := range n.Reasons {
				c.line("| %s | %d | %d | %d |", cell(r.Reason), r.Groups, r.Finished, r.Tokens)
			}
			c.line("")
		}
	}
	divided := 0
	for _, s := range c.seals {
		if s.divided {
			divided++
		}
	}
	if divided > 0 {
		c.line("%d updates ran out of memory and were divided into smaller micro-batches, which are recorded with their results.\n", divided)
	}
	if len(c.events) == 0 {
		c.line("No failure or recovery is recorded.\n")
		return
	}
	c.line("| failure or recovery, by kind | events |\n| --- | ---: |")
	for _, kind := range slices.Sorted(maps.Keys(c.events)) {
		c.line("| %s | %d |", cell(kind), c.events[kind])
	}
	c.line("")
	if n := c.events[record.ReplayMismatch]; n > 0 {
		c.line("%d replayed steps had other bits than were recorded: this model cannot be reproduced bit for bit from its sealed batches.\n", n)
	}
}

func (c *card) limits() {
	c.line("## Limits\n")
	c.line("- One run with one seed (%s). The intervals above are over problems; they say nothing of how another seed would end.", c.values["run.seed"])
	c.line("- The dev problems were looked at during the run, and settings or the step may have been chosen by them. They are no test set: evaluate the model on")
	c.line("  problems of your own before you claim a gain.")
	c.line("- Dev problems come from the same source and filter as the training problems. Other statements, languages and tasks were not measured; nor were safety,")
	c.line("  general chat or code quality.")
	if c.manifest != nil && c.manifest.Exclusions == 0 {
		c.line("- No list of excluded problems was given: the training problems may be part of public evaluations.")
	} else {
		c.line("- Known problems were excluded by identity only: paraphrases of problems of public evaluations can be in the training data, and the base model may have seen any.")
	}
	c.line("- The reward is the share of saved tests that pass. A program that fits the tests and is wrong elsewhere is rewarded; problems with several right outputs were")
	c.line("  filtered by a heuristic.")
	if share := meanNumber(c.seals, func(s sealed) *float64 { return s.batch.Rollout.LengthCutShare }); share > 0.1 {
		c.line("- In the last steps %s of the responses were cut at the length limit.", percent(share))
	}
	if c.values["mode"] == "async" {
		c.line("- Mode async: which versions sampled which tokens depended on timing. Another run with the same settings gives other batches.")
	}
	if len(c.damaged) > 0 {
		c.line("- Records of the run are damaged, and what this page says of them is incomplete: %s.", strings.Join(c.damaged, ", "))
	}
	if c.unsealed > 0 {
		c.line("- %d of the %d records of the run that this page was made from carry no seal: an older build wrote them, or the seals were removed.", c.unsealed, c.read)
	}
	c.line("- Run generated programs in a sandbox.\n")
}

// meanNumber is the mean over the last ten steps, 0 where nothing is recorded.
func meanNumber(steps []sealed, of func(sealed) *float64) float64 {
	sum, n := 0.0, 0
	for _, s := range steps[max(0, len(steps)-10):] {
		if v := of(s); v != nil {
			sum, n = sum+*v, n+1
		}
	}
	return sum / float64(max(n, 1))
}

func (c *card) reproduce() {
	c.line("## Reproduce\n")
	c.line("`steady verify-export DIRECTORY` checks every file and tensor against `certificate.json` and runs the model.\n")
	c.line("| what | value |\n| --- | --- |")
	row := func(what, value string) {
		if value != "" {
			c.line("| %s | `%s` |", what, cell(value))
		}
	}
	row("run, lineage, step", fmt.Sprintf("%s, %s, %d", c.layout.Run, c.layout.Lineage, c.step))
	row("recipe", c.run.Recipe)
	row("steady that started the run", c.run.Steady)
	row("digest of the configuration", c.run.ConfigDigest)
	row("digest of the BF16 weights at the start", c.first)
	if c.result != nil {
		row("digest of the BF16 weights exported", c.result.WeightsDigest)
		row("digest of the state (float32 weights, both moments, step)", c.result.StateDigest)
		row("digest of the last sealed batch", c.result.BatchDigest)
	}
	c.line("")
	if len(c.workers) > 0 {
		c.line("Processes that served the run:\n")
		for _, w := range c.workers {
			c.line("- %s", cell(w))
		}
		c.line("")
	}
	c.line("Given the sealed batches, the weights are a function of them: a trainer that replays them has the same bits, on the same kind of engine. In mode sync the batches are")
	c.line("a function of the settings too.\n")
}
