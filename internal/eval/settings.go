package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rollout"
)

// Settings decide every response and every verdict.
type Settings struct {
	Format   int              `json:"format"` // 1
	Data     Data             `json:"data"`
	Model    Model            `json:"model"`
	Samples  int              `json:"samples"` // responses to a problem
	Seed     uint64           `json:"seed"`
	Sampling rollout.Settings `json:"sampling"`
	Programs Programs         `json:"programs"`
}

// Data are the problems.
type Data struct {
	Kind  string `json:"kind"`            // taco, lcb, deepcoder
	Split string `json:"split,omitempty"` // of a prepared data set
	Limit int    `json:"limit,omitempty"` // only the first problems, 0 for all
	// Release, From and Until choose problems of LiveCodeBench.
	Release int    `json:"release,omitempty"`
	From    string `json:"from,omitempty"`
	Until   string `json:"until,omitempty"`
	// Problems, Digest: how many there are and the SHA-256 of their ids, statements and tests, in order.
	Problems int    `json:"problems"`
	Digest   string `json:"digest"`
}

// Model is the policy.
type Model struct {
	// Engine is cpu or ref, or the dialect of a server.
	Engine string `json:"engine"`
	// Served is the model's name at the server; its weights are not known then.
	Served    string `json:"served,omitempty"`
	Weights   string `json:"weights_digest,omitempty"` // as in an export's certificate
	Config    string `json:"config_digest"`            // of config.json
	Tokenizer string `json:"tokenizer_digest"`
}

// Programs are the limits under which programs run, of the model's tool and of the judge.
type Programs struct {
	Python      string  `json:"python"` // version
	TimeLimit   float64 `json:"time_limit_s"`
	Memory      int64   `json:"memory_bytes"`
	OutputLimit int64   `json:"output_limit_bytes"`
	JudgeBudget float64 `json:"judge_budget_s"`
}

// Names in the store.
const (
	SettingsFile = "settings.json"
	ResultFile   = "eval.json"
)

// claim writes the settings, unless they lie in the store already. Errors: Invalid (others do, and in what they differ; something else
// lies there), Corrupt, those of the store.
func claim(ctx context.Context, s artifact.Store, want Settings) error {
	const op = "eval.claim"
	names, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	if len(names) > 0 && !slices.Contains(names, SettingsFile) {
		return fault.New(fault.Invalid, op, "the directory of the evaluation holds something else: %s", names[0]).
			WithHint("choose a new or empty directory with --out")
	}
	_, err = artifact.PutJSON(ctx, s, SettingsFile, want)
	if !fault.Is(err, fault.Stale) {
		return err
	}
	damaged := fault.New(fault.Corrupt, op, "%s is not as it was written", SettingsFile).WithHint("start again with another --out")
	var got Settings
	if _, err := artifact.GetJSON(ctx, s, SettingsFile, &got); fault.Is(err, fault.Corrupt) {
		return damaged
	} else if err != nil {
		return err
	}
	d, err := Differences(got, want)
	if err != nil {
		return err
	}
	if len(d) > 0 {
		return fault.New(fault.Invalid, op, "the evaluation that lies there has other settings: %s", strings.Join(d, "; ")).
			WithHint("give the settings of that evaluation, or another directory with --out")
	}
	return damaged
}

// Differences lists the settings that differ, as "key was A, now B".
func Differences(old, now Settings) ([]string, error) {
	a, err := flat(old)
	if err != nil {
		return nil, err
	}
	b, err := flat(now)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
		if a[key] != b[key] {
			out = append(out, fmt.Sprintf("%s was %s, now %s", key, shown(a[key]), shown(b[key])))
		}
	}
	return out, nil
}

func shown(v string) string {
	if v == "" {
		return "not given"
	}
	return v
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// flat lists the values of s by their keys, joined with dots.
func flat(s Settings) (map[string]string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fault.New(fault.Internal, "eval.flat", "%w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, fault.New(fault.Internal, "eval.flat", "%w", err)
	}
	out := map[string]string{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, v := range m {
				walk(strings.TrimPrefix(prefix+"."+k, "."), v)
			}
			return
		}
		out[prefix] = fmt.Sprint(v)
	}
	walk("", tree)
	return out, nil
}
