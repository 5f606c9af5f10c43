package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/engine/plan"
)

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// inGiB is a number of bytes in GiB; nothing for 0.
func inGiB(bytes int) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(bytes)/(1<<30))
}

// text is the plan for people.
func (p *planned) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	cfg := p.cfg
	name := "no recipe"
	if p.Recipe != "" {
		name = "recipe " + p.Recipe
	}
	line("run", "%s: %d steps of %d problems x %d responses, mode %s", name, cfg.Run.Steps, cfg.Rollout.BatchProblems, cfg.Rollout.GroupSize, cfg.Mode)
	line("model", "%s: %s weights", p.Model, thousands(p.Parameters))
	use := "one trains, the others generate"
	if p.Shared {
		use = "it trains and generates"
	}
	line("GPUs", "%d x %s (%s); %s", p.GPUs, p.Card.Name, gibText(p.Card.Bytes()), use)
	if cfg.Engine.Backend != "cuda" {
		line("engine", "the run asks for engine.backend %s; this is what it would need with cuda", cfg.Engine.Backend)
	}
	for _, m := range p.Memory {
		p.memoryText(&b, m)
	}
	b.WriteString("\nleast memory by size of Qwen3 with these settings, GiB\n")
	fmt.Fprintf(&b, "  %-14s %10s%10s%14s\n", "model", "trainer", "sampler", "both on one")
	for _, s := range p.Sizes {
		fmt.Fprintf(&b, "  %-14s %10s%10s%14s\n", s.Name, inGiB(s.Trainer), inGiB(s.Sampler), inGiB(s.Both))
	}
	b.WriteString("\nwhat fits with these settings\n")
	fmt.Fprintf(&b, "  %-14s %10s  %-9s%-9s%s\n", "card", "GiB", "trainer", "sampler", "both on one")
	yes := map[bool]string{true: "yes", false: "-"}
	for _, c := range p.Cards {
		fmt.Fprintf(&b, "  %-14s %10.1f  %-9s%-9s%s\n", c.Card.Name, float64(c.Card.Bytes())/(1<<30), yes[c.Trainer], yes[c.Sampler], yes[c.Both])
	}
	fmt.Fprintf(&b, "  facts: %s\n", plan.CardSource)
	p.ratesText(&b, line)
	d := p.Disk
	b.WriteString("\n")
	line("disk", "%.1f GB: checkpoints %.1f, versions %.1f, trajectories %.1f, export %.1f", d.Sum/1e9, d.Checkpoints/1e9, d.Weights/1e9,
		d.Trajectories/1e9, d.Export/1e9)
	line("memory of the host", "%s while a checkpoint is restored (16 bytes a weight)", gibText(p.Host))
	return b.String()
}

func gibText(bytes int) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// memoryText is the table of one GPU.
func (p *planned) memoryText(b *strings.Builder, m planMemory) {
	fmt.Fprintf(b, "\nGPU of the %s: least memory, GiB\n  %-22s", m.Role, "")
	for _, s := range m.Sides {
		fmt.Fprintf(b, "%*s", max(10, len(s)+2), s)
	}
	b.WriteString("\n")
	sums := map[string]int{}
	for _, c := range m.Class {
		fmt.Fprintf(b, "  %-22s", c.Class)
		for _, s := range m.Sides {
			fmt.Fprintf(b, "%*s", max(10, len(s)+2), inGiB(c.Bytes[s]))
			sums[s] += c.Bytes[s]
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "  %-22s", "sum")
	for _, s := range m.Sides {
		fmt.Fprintf(b, "%*s", max(10, len(s)+2), inGiB(sums[s]))
	}
	verdict := "does not fit on " + p.Card.Name
	if m.Fits {
		verdict = "fits on " + p.Card.Name
	}
	fmt.Fprintf(b, "\n  %-22s%10s of %.2f: %s\n", "together", inGiB(m.Least), float64(p.Card.Bytes())/(1<<30), verdict)
	if f := m.Fill; f != nil {
		if m.use.Sampler && m.use.Trainer && m.use.CacheTokens == 0 {
			fmt.Fprintf(b, "  the cache is planned by a worker with both roles, so that the trainer finds its memory\n")
		}
		if m.use.Sampler {
			fmt.Fprintf(b, "  with what is left:    cache for %s tokens: %d responses of the longest kind at once (engine.max_sequences %d)\n",
				thousands(f.CacheTokens), f.Together, m.use.Sequences)
		}
		if m.use.Trainer && f.Layers > 0 {
			what := "the rest is computed again"
			if f.Rich {
				what = "nothing is computed again"
			}
			fmt.Fprintf(b, "  with what is left:    activations of %d of %d layers are kept; %s\n", f.Layers, m.use.Model.Layers, what)
		}
	}
	most := m.Most
	fmt.Fprintf(b, "  largest that fits:    ")
	if m.use.Trainer {
		fmt.Fprintf(b, "train.micro_batch_tokens %s (now %s); ", orNone(most.Micro, m.use.Micro), thousands(m.use.Micro))
	}
	if m.use.Sampler {
		fmt.Fprintf(b, "engine.max_sequences %s; ", orNone(most.Sequences, m.use.Sequences))
	}
	fmt.Fprintf(b, "rollout.max_total %s\n", orNone(most.Longest, m.use.Longest))
}

// orNone names the largest value that fits, of those up to what is asked for.
func orNone(n, asked int) string {
	switch {
	case n == 0:
		return "none"
	case n >= asked:
		return "as asked"
	}
	return thousands(n)
}

func (p *planned) ratesText(b *strings.Builder, line func(name, format string, args ...any)) {
	r := p.Rates
	if r == nil {
		fmt.Fprintf(b, "\nno estimate of time: %s\n", p.NoRates)
		return
	}
	fmt.Fprintf(b, "\nestimate for %s: limits of the data sheet times the shares of them that this engine reached on an H200\n", p.Card.Name)
	line("assumed", "prompts of %d tokens and responses of %d in the mean (--mean-prompt, --mean-response)", r.MeanPrompt, r.MeanResponse)
	line("training", "%s tokens/s, %.1f s an update of %s tokens", thousands(int(r.TrainRate)), r.Update, thousands(int(r.TokensStep)))
	line("sampling", "%s tokens/s a GPU with %d responses at once, %.1f for each; prompts %s tokens/s", thousands(int(r.DecodeRate)), int(r.TogetherMean),
		r.ResponseRate, thousands(int(r.PromptRate)))
	line("step", "%.1f s: rollout %.1f, update %.1f; bound by %s", r.Step, r.Rollout, r.Times.Update, r.Bound)
	line("validation", "%.1f s", r.Validation)
	line("whole run", "%.1f hours, %.1f GPU-hours", r.Hours, r.GPUHours)
	if r.Cost > 0 {
		line("cost", "%.2f at the price given", r.Cost)
	}
	if r.Simulate == "" {
		line("left out", "judging, tools, swaps of weights, checkpoints, failures; steady simulate cannot play this run:")
		fmt.Fprintf(b, "  %s\n", r.NoSimulation)
		return
	}
	line("left out", "judging, tools, swaps of weights, checkpoints, failures; play them with:")
	fmt.Fprintf(b, "  %s\n", r.Simulate)
}
