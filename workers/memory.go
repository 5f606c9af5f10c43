package workers

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Memory is what a run asks of a GPU. Of the worker it takes how many sequences are generated at once and what the cache is asked to hold (0: what fits).
func Memory(c *config.Config, m model.Config, trainer, sampler bool, sequences, cacheTokens int) plan.Use {
	return plan.Use{
		Model: m, Trainer: trainer, Sampler: sampler, Micro: c.Train.MicroBatchTokens, Longest: c.Rollout.MaxTotal, Record: c.Rollout.TopKRecord,
		Sequences: sequences, CacheTokens: cacheTokens,
	}
}

// gib is a number of bytes in GiB, for people.
func gib(bytes int) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// Advice is a setting with which a run fits.
type Advice struct {
	Setting string `json:"setting"` // with its value
	Effect  string `json:"effect"`
}

// Advise lists changes each of which alone makes a use fit in memory bytes; maxPrompt is the longest prompt of the run. Keys of the configuration come
// first, then other models and cards.
func Advise(u plan.Use, memory, maxPrompt int) []Advice {
	var out []Advice
	if n := plan.MicroThatFits(u, memory); u.Trainer && n > 0 && n < u.Micro {
		out = append(out, Advice{fmt.Sprintf("train.micro_batch_tokens=%d", n), "the largest micro-batch that fits; changes the order of sums"})
	}
	if n := plan.SequencesThatFit(u, memory); u.Sampler && n > 0 && n < u.Sequences {
		out = append(out, Advice{fmt.Sprintf("engine.max_sequences=%d (of a worker: --max-sequences %d)", n, n), "fewer responses at once"})
	}
	if v := u; u.CacheTokens > 0 {
		if v.CacheTokens = 0; plan.Fits(v, memory) {
			out = append(out, Advice{"--cache-tokens 0", "the cache takes what fits"})
		}
	}
	if n := plan.LongestThatFits(u, memory); n > maxPrompt && n < u.Longest {
		text := fmt.Sprintf("rollout.max_total=%d rollout.max_response=%d", n, n-maxPrompt)
		if u.Trainer && n < u.Micro {
			text += fmt.Sprintf(" train.micro_batch_tokens=%d", n)
		}
		out = append(out, Advice{text, "the longest trajectories that fit"})
	}
	if u.Trainer && u.Sampler {
		v, w := u, u
		v.Sampler, w.Trainer = false, false
		if plan.Fits(v, memory) && plan.Fits(w, memory) {
			out = append(out, Advice{"two GPUs of this kind", "one worker for the role trainer, one for rollout"})
		}
	}
	for _, s := range plan.Qwen3() {
		v := u
		if v.Model = s.Model; plan.Parameters(s.Model) < plan.Parameters(u.Model) && plan.Fits(v, memory) {
			size := Advice{"a smaller model: Qwen3-" + s.Name, "the largest of the family that fits with these settings"}
			if n := len(out); n > 0 && out[n-1].Effect == size.Effect {
				out = out[:n-1]
			}
			out = append(out, size)
		}
	}
	var cards []string
	for _, c := range plan.Cards() {
		if plan.Fits(u, c.Bytes()) {
			cards = append(cards, c.Name)
		}
	}
	if len(cards) > 0 {
		out = append(out, Advice{"another card: " + strings.Join(cards, ", "), "it has the memory"})
	}
	return out
}

// memoryPlan is the plan of one GPU for the runs that a worker serves.
type memoryPlan struct {
	card             string
	memory           int // bytes; 0 or less where it is not known: nothing is refused then
	trainer, sampler bool
	sequences        int
	cacheTokens      int // asked for; 0 for what fits

	mu      sync.Mutex
	planned map[model.Config]int // tokens of the cache beside a trainer, by model
}

// engineRoles says which engines the roles of a worker need.
func engineRoles(roles []Role) (trainer, sampler bool) {
	return slices.Contains(roles, RoleTrainer) || slices.Contains(roles, RoleStandby), slices.Contains(roles, RoleRollout)
}

// fits refuses a run that the GPU has too little memory for. For one that trains and samples there, it plans the sampler's cache: whichever engine starts
// first, the other finds its least memory.
func (p *memoryPlan) fits(c *config.Config, m model.Config) error {
	if p.memory <= 0 || !p.trainer && !p.sampler {
		return nil
	}
	sequences := p.sequences
	if sequences == 0 {
		sequences = 256 // the engine's default
	}
	u := Memory(c, m, p.trainer, p.sampler, sequences, p.cacheTokens)
	if err := CheckMemory(u, p.card, p.memory, c.Rollout.MaxPrompt); err != nil {
		return err
	}
	if p.trainer && p.sampler && p.cacheTokens == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.planned == nil {
			p.planned = map[model.Config]int{}
		}
		p.planned[m] = plan.Fill(u, p.memory).CacheTokens
	}
	return nil
}

// cache is the number of tokens that a sampler's cache is asked to hold; 0 for the engine's own rule.
func (p *memoryPlan) cache(m model.Config) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cacheTokens > 0 {
		return p.cacheTokens
	}
	return p.planned[m]
}

// CheckMemory refuses a use that does not fit on a card, with what does. Nothing is loaded for it. Errors: Invalid.
func CheckMemory(u plan.Use, card string, memory, maxPrompt int) error {
	const op = "workers.CheckMemory"
	if err := u.Check(); err != nil {
		return err
	}
	need := plan.Least(u).Bytes()
	if need <= memory {
		return nil
	}
	what := "the trainer of this model needs"
	switch {
	case u.Trainer && u.Sampler:
		what = "trainer and sampler of this model together need"
	case u.Sampler:
		what = "the sampler of this model needs"
	}
	var lines []string
	for _, a := range Advise(u, memory, maxPrompt) {
		lines = append(lines, a.Setting)
	}
	err := fault.New(fault.Invalid, op, "%s at least %s (%d weights, trajectories of %d tokens, micro-batches of %d, %d sequences at once); the GPU (%s) has %s",
		what, gib(need), plan.Parameters(u.Model), u.Longest, max(u.Micro, u.Longest), u.Sequences, card, gib(memory))
	if len(lines) == 0 {
		return err.WithHint("a larger GPU: no single setting is enough")
	}
	return err.WithHint("one of: %s", strings.Join(lines, "; "))
}
