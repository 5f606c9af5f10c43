package workers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

func recipe(t *testing.T, name string, sets ...string) *config.Config {
	t.Helper()
	c, _, err := config.Load(config.Options{Recipe: name, Sets: sets})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func qwen(t *testing.T, name string) model.Config {
	t.Helper()
	s, err := plan.SizeNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return s.Model
}

// Every setting that a refusal names makes the run fit when it is set, on large and small cards and for every size.
func TestAdvise_everySettingItNamesIsEnough(t *testing.T) {
	t.Parallel()
	tried := map[string]int{}
	for _, size := range plan.Qwen3() {
		for _, name := range []string{"H200", "H100", "A100-40GB", "RTX-4090"} {
			card, err := plan.CardNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			for kind := range 3 {
				for _, sets := range [][]string{nil, {"rollout.max_prompt=1024", "rollout.max_total=9216", "train.micro_batch_tokens=65536", "engine.max_sequences=16384"}} {
					c := recipe(t, "sc-taco-1gpu", sets...)
					u := Memory(c, size.Model, kind != 1, kind != 0, c.Engine.MaxSequences, 0)
					if plan.Fits(u, card.Bytes()) {
						continue
					}
					for _, a := range Advise(u, card.Bytes(), c.Rollout.MaxPrompt) {
						first, rest, _ := strings.Cut(a.Setting, " ")
						key, _, isKey := strings.Cut(first, "=")
						if !isKey {
							continue
						}
						tried[key]++
						values := append(append([]string{}, sets...), first)
						for _, more := range strings.Fields(rest) {
							if strings.Contains(more, "=") && !strings.HasPrefix(more, "(") {
								values = append(values, more)
							}
						}
						set := recipe(t, "sc-taco-1gpu", values...)
						if err := set.Validate(nil); err != nil {
							t.Errorf("%s: %v is no valid configuration: %v", a.Setting, values, err)
						}
						v := Memory(set, size.Model, u.Trainer, u.Sampler, set.Engine.MaxSequences, 0)
						if !plan.Fits(v, card.Bytes()) {
							t.Errorf("%s on %s: %q does not make it fit", size.Name, card.Name, a.Setting)
						}
					}
				}
			}
		}
	}
	for _, key := range []string{"train.micro_batch_tokens", "engine.max_sequences", "rollout.max_total"} {
		if tried[key] == 0 {
			t.Errorf("%s was never named", key)
		}
	}
}

// A worker refuses before anything is loaded, with the message of `steady plan`, and plans the cache where two engines share a GPU.
func TestMemoryPlan_refusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	c := recipe(t, "sc-taco-1gpu")
	m := qwen(t, "4B")
	p := &memoryPlan{card: "a card", memory: 80 << 30, trainer: true, sampler: true, sequences: 64}
	err := p.fits(c, m)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "the GPU (a card) has 80.0 GiB") || !strings.Contains(fault.HintOf(err), "H200") {
		t.Errorf("80 GiB: %v, hint %q", err, fault.HintOf(err))
	}
	u := Memory(c, m, true, true, 64, 0)
	if want := CheckMemory(u, "a card", 80<<30, c.Rollout.MaxPrompt); want == nil || err == nil || want.Error() != err.Error() {
		t.Errorf("the worker says %v, the plan %v", err, want)
	}
	if got := p.cache(m); got != 0 {
		t.Errorf("a cache of %d tokens is planned for a run that is refused", got)
	}
	p.memory = 141 << 30
	if err := p.fits(c, m); err != nil {
		t.Fatal(err)
	}
	cache := p.cache(m)
	if u.CacheTokens = cache; cache < c.Rollout.MaxTotal || !plan.Fits(u, p.memory) {
		t.Errorf("a cache of %d tokens is planned", cache)
	}
	for name, q := range map[string]*memoryPlan{
		"memory is not known": {trainer: true, sampler: true, sequences: 64},
		"no engine":           {memory: 1 << 30},
	} {
		if err := q.fits(c, m); err != nil || q.cache(m) != 0 {
			t.Errorf("%s: %v, cache %d", name, err, q.cache(m))
		}
	}
	asked := &memoryPlan{memory: 141 << 30, trainer: true, sampler: true, sequences: 64, cacheTokens: 20_000}
	if err := asked.fits(c, m); err != nil || asked.cache(m) != 20_000 {
		t.Errorf("asked for 20,000 tokens: %v, cache %d", err, asked.cache(m))
	}
	asked.cacheTokens = 10_000_000
	if err := asked.fits(c, m); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "--cache-tokens 0") {
		t.Errorf("a cache that does not fit: %v, hint %q", err, fault.HintOf(err))
	}
}

func TestEngineRoles_areThoseThatNeedMemory(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"control,data,judge": "false false", "rollout": "false true", "trainer": "true false", "standby": "true false", "all": "true true",
	} {
		roles, err := ParseRoles(list)
		if err != nil {
			t.Fatal(err)
		}
		if trainer, sampler := engineRoles(roles); fmt.Sprint(trainer, sampler) != want {
			t.Errorf("%s: trainer %v, sampler %v, want %s", list, trainer, sampler, want)
		}
	}
}
