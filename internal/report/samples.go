package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// maxFiles bounds the group files that are read to find a trajectory with a tool.
const maxFiles = 64

// maxText is the longest piece of text shown, in characters.
const maxText = 12000

// pick is a trajectory of a sealed batch.
type pick struct {
	title string
	step  int
	s     record.Sample
}

// verdicts is what the page needs of the judge's record of a group.
type verdicts struct {
	Items []struct {
		Sample int `json:"sample"`
		judge.Verdict
	} `json:"items"`
}

// samples chooses the best and the worst trajectory of the newest trained step, and the newest one that started a tool.
func (ld *loader) samples() error {
	steps := ld.trainedSteps()
	if len(steps) == 0 {
		return absent("trajectory")
	}
	dir, err := ld.store.Pull(ld.ctx, ld.l.Base())
	if err != nil {
		return err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return err
	}
	best, worst := extremes(steps[0], ld.sealed[steps[0]])
	picks := []pick{best, worst}
	tool, found, err := ld.toolUser(steps)
	if err != nil {
		return err
	}
	if found {
		picks = append(picks, tool)
	}
	for _, p := range merged(picks) {
		s, err := ld.sample(tok, p)
		if fault.Is(err, fault.NotFound) {
			ld.missing("Sample trajectory: "+p.title, "its files are no longer kept")
			continue
		}
		if err != nil {
			return err
		}
		ld.d.Samples = append(ld.d.Samples, s)
	}
	return nil
}

// trainedSteps lists the steps with a result and a batch of trajectories, newest first.
func (ld *loader) trainedSteps() []int {
	var out []int
	for _, s := range ld.d.Steps {
		if s.Update != nil && len(ld.sealed[s.Step].Samples) > 0 {
			out = append(out, s.Step)
		}
	}
	slices.Reverse(out)
	return out
}

// extremes returns the trajectories with the highest and the lowest reward; among equals the one that differs most
// from its group, then the first.
func extremes(step int, b record.Sealed) (best, worst pick) {
	by := func(x, y record.Sample) int {
		return cmp.Or(cmp.Compare(x.Reward, y.Reward), cmp.Compare(x.Advantage, y.Advantage),
			cmp.Compare(y.Group, x.Group), cmp.Compare(y.Index, x.Index))
	}
	hi := slices.MaxFunc(b.Samples, by)
	lo := slices.MinFunc(b.Samples, by)
	return pick{fmt.Sprintf("Highest reward of step %d", step), step, hi}, pick{fmt.Sprintf("Lowest reward of step %d", step), step, lo}
}

// toolUser finds the newest trajectory in which a tool process started.
func (ld *loader) toolUser(steps []int) (pick, bool, error) {
	files := 0
	for _, step := range steps {
		b := ld.sealed[step]
		if share := b.Rollout.ToolShare; share == nil || *share == 0 {
			continue
		}
		for _, g := range b.Groups {
			if files++; files > maxFiles {
				return pick{}, false, nil
			}
			ts, err := ld.trajectories(g.File)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return pick{}, false, err
			}
			for _, s := range b.Samples {
				if s.Group == g.N && s.Index < len(ts) && ts[s.Index].ToolStarted() {
					return pick{fmt.Sprintf("Newest use of the tool, step %d", step), step, s}, true, nil
				}
			}
		}
	}
	return pick{}, false, nil
}

// merged joins picks of one trajectory.
func merged(picks []pick) []pick {
	var out []pick
	for _, p := range picks {
		i := slices.IndexFunc(out, func(o pick) bool { return o.step == p.step && o.s.Group == p.s.Group && o.s.Index == p.s.Index })
		if i < 0 {
			out = append(out, p)
			continue
		}
		out[i].title += "; " + p.title
	}
	return out
}

func (ld *loader) trajectories(ref artifact.Ref) ([]*trajectory.Trajectory, error) {
	data, err := artifact.Fetch(ld.ctx, ld.store, ref)
	if err != nil {
		return nil, err
	}
	return trajectory.Decode(data)
}

// sample reads one trajectory and the judge's word on it.
func (ld *loader) sample(tok *tokenizer.Tokenizer, p pick) (Sample, error) {
	groups := ld.sealed[p.step].Groups
	i := slices.IndexFunc(groups, func(g record.Group) bool { return g.N == p.s.Group })
	if i < 0 {
		return Sample{}, fault.New(fault.Corrupt, "report.Load", "the batch of step %d has a sample of group %d but no such group", p.step, p.s.Group)
	}
	g := groups[i]
	ts, err := ld.trajectories(g.File)
	if err != nil {
		return Sample{}, err
	}
	var v verdicts
	if err := artifact.FetchJSON(ld.ctx, ld.store, g.Verdicts, &v); err != nil {
		return Sample{}, err
	}
	if p.s.Index < 0 || p.s.Index >= len(ts) || p.s.Index >= len(v.Items) {
		return Sample{}, fault.New(fault.Corrupt, "report.Load", "group %d has %d trajectories and %d verdicts, the batch names number %d",
			g.N, len(ts), len(v.Items), p.s.Index)
	}
	t, item := ts[p.s.Index], v.Items[p.s.Index]
	out := Sample{
		Title: p.title, Where: fmt.Sprintf("step %d, group %d, response %d", p.step, g.N, p.s.Index+1), Problem: g.ProblemID,
		Reward: p.s.Reward, Advantage: record.Num(p.s.Advantage), Passed: item.Passed, Total: item.Total, Kind: string(item.Kind),
		Tokens: t.Len(), Sampled: t.Sampled(), MinVersion: p.s.MinVersion, MaxVersion: p.s.MaxVersion,
	}
	kinds := map[string]int{}
	for _, test := range item.Tests {
		kinds[string(test.Kind)]++
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out.Tests = append(out.Tests, Count{Name: k, N: kinds[k]})
	}
	out.Prompt, out.Turns = texts(tok, t)
	return out, nil
}

// texts splits a trajectory where the model's own tokens begin and end.
func texts(tok *tokenizer.Tokenizer, t *trajectory.Trajectory) (prompt string, turns []Turn) {
	ids, mask := t.IDs(), t.Mask()
	prompt = middle(tok.Decode(ids[:t.Prompt()], false), maxText)
	for i := t.Prompt(); i < len(ids); {
		j := i
		for j < len(ids) && mask[j] == mask[i] {
			j++
		}
		turns = append(turns, Turn{Model: mask[i], Text: middle(tok.Decode(ids[i:j], false), maxText)})
		i = j
	}
	return prompt, turns
}

// newSample is a trajectory as the page shows it.
func newSample(s Sample) sampleView {
	v := sampleView{Title: s.Title, Prompt: s.Prompt, Turns: s.Turns}
	add := func(name, format string, args ...any) {
		v.Facts = append(v.Facts, prop{name, fmt.Sprintf(format, args...)})
	}
	add("problem", "%s", s.Problem)
	add("reward", "%.3f", s.Reward)
	if s.Advantage != nil {
		add("advantage", "%+.3f", *s.Advantage)
	}
	add("verdict", "%s", s.Kind)
	add("tests passed", "%s of %s", integer(s.Passed), integer(s.Total))
	for _, t := range s.Tests {
		add("tests "+t.Name, "%s", integer(t.N))
	}
	add("tokens", "%s, of these %s sampled", integer(s.Tokens), integer(s.Sampled))
	if s.MinVersion == s.MaxVersion {
		add("policy version", "%d", s.MinVersion)
	} else {
		add("policy versions", "%d to %d", s.MinVersion, s.MaxVersion)
	}
	add("where", "%s", s.Where)
	return v
}
