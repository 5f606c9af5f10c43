// Package transcripttest writes a small run for tests that read trajectories. It may import what transcript imports,
// chat, demo and engine.
package transcripttest

import (
	"io/fs"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Hostile stands in the answers of the run: what a terminal or a browser must not act on.
const Hostile = "\x1b[2J\u202e<script>alert(1)</script>"

// Run is a run in a store.
type Run struct {
	tb    testing.TB
	Store *artifact.Files
	record.Layout
	Tokenizer *tokenizer.Tokenizer
}

// Write leaves a run named "r", lineage l0, in the directory data of a command:
//
//	group 0  trained in step 1: two samples, the second with a call of the tool, judged
//	group 1  dropped as stale, generated but not judged
//	group 2  open: sample 0 finished, sample 1 flushed in its first turn
//	group 3  open, nothing of it is kept
//	validation 000000 of two problems, judged
func Write(tb testing.TB, data string) *Run {
	tb.Helper()
	store, err := artifact.NewFiles(data + "/store")
	if err != nil {
		tb.Fatal(err)
	}
	r := &Run{tb: tb, Store: store, Layout: record.Layout{Run: "r", Lineage: "l0"}}
	file, err := fs.ReadFile(demo.Model(), tokenizer.FileName)
	if err != nil {
		tb.Fatal(err)
	}
	if r.Tokenizer, err = tokenizer.Parse(file); err != nil {
		tb.Fatal(err)
	}
	r.put(r.Base()+"/"+tokenizer.FileName, file)
	r.json(r.RunFile(), record.Run{Run: "r", Lineage: "l0"})
	group := record.Group{N: 0, Problem: 4, ProblemID: "p4", Tag: 1}
	group.File, group.Verdicts = r.unit(record.GroupUnit(0, 1, 4, 0), true, r.Plain(4, 0), r.WithTool(4, 1))
	r.json(r.Batch(1), record.Sealed{Step: 1, Groups: []record.Group{group}, Samples: []record.Sample{
		{Group: 0, Index: 0, Reward: 1, Advantage: 0.25}, {Group: 0, Index: 1, Reward: 0.5, Advantage: -0.25},
	}})
	r.unit(record.GroupUnit(1, 1, 5, 0), false, r.Plain(5, 0), r.Plain(5, 1))
	open := record.GroupUnit(2, 2, 5, 1)
	r.put(r.Sample(open, 5, 0), r.encode(r.Plain(5, 0)))
	unfinished := r.begin(5, 1)
	r.say(unfinished, "let me see")
	r.put(r.Partial(open, 5, 1), r.encode(unfinished))
	dev := record.EvalUnit("000000", 0)
	r.unit(dev, true, r.Plain(0, 0), r.WithTool(1, 0))
	r.json(r.Layout.Validation("000000"), record.Validation{Name: "000000", Problems: 2, Units: []string{dev}})
	r.json(r.Ledger(1), record.Ledger{
		Step: 1, Trained: []int{0}, Dropped: []record.Drop{{N: 1, Reason: "stale", Tag: 1}}, NextGroup: 4,
		Submitted: []record.Submitted{{N: 0, Problem: 4, Tag: 1}, {N: 1, Problem: 5, Tag: 1}, {N: 2, Problem: 5, Tag: 2, Submission: 1}, {N: 3, Problem: 6, Tag: 2}},
	})
	return r
}

// Plain is a response of one turn.
func (r *Run) Plain(problem, sample int) *trajectory.Trajectory {
	t := r.begin(problem, sample)
	r.say(t, "```python\nprint(1)\n```"+Hostile+chat.TurnEnd)
	t.End = trajectory.EndStop
	return t
}

// WithTool is a response of two turns with a call between them.
func (r *Run) WithTool(problem, sample int) *trajectory.Trajectory {
	t := r.begin(problem, sample)
	r.say(t, "<tool_call>\n{\"name\": \"run_python\", \"arguments\": {\"code\": \"print(8)\"}}\n</tool_call>"+chat.TurnEnd)
	t.Turns[0].Call = &trajectory.Call{Status: "ran", Started: true, Outcome: "ok", Seconds: 0.5, Ignored: 1, Cut: true, CutCharacters: 7}
	t.AppendInserted(r.Tokenizer.EncodeParts(chat.ToolReply("8"+Hostile, false)))
	r.say(t, "done"+chat.TurnEnd)
	t.End = trajectory.EndStop
	return t
}

func (r *Run) begin(problem, sample int) *trajectory.Trajectory {
	r.tb.Helper()
	prompt, err := chat.Prompt(r.Tokenizer, "Print a number & <b>stop</b>.", false)
	if err != nil {
		r.tb.Fatal(err)
	}
	return trajectory.New(trajectory.Key{ProblemID: "p" + string(rune('0'+problem)), Problem: problem, Split: "train", Sample: sample, Tag: 1}, prompt, 0)
}

func (r *Run) say(t *trajectory.Trajectory, text string) {
	r.tb.Helper()
	t.BeginTurn()
	for _, id := range r.Tokenizer.Encode(text) {
		if err := t.AppendSampled(engine.Token{ID: id, LogProb: -0.5, Version: len(t.Turns)}); err != nil {
			r.tb.Fatal(err)
		}
	}
}

func (r *Run) unit(name string, judged bool, ts ...*trajectory.Trajectory) (file, verdicts artifact.Ref) {
	r.tb.Helper()
	file = r.put(r.Trajectories(name), r.encode(ts...))
	if !judged {
		return file, verdicts
	}
	items := []map[string]any{}
	for i, t := range ts {
		items = append(items, map[string]any{
			"problem_id": t.ProblemID, "sample": t.Sample, "reward": 1 / float64(i+1), "kind": "accepted", "passed": 2 - i, "total": 2,
		})
	}
	return file, r.json(r.Verdicts(name), map[string]any{"unit": name, "file": file, "items": items})
}

func (r *Run) encode(ts ...*trajectory.Trajectory) []byte {
	r.tb.Helper()
	data, err := trajectory.Encode(ts)
	if err != nil {
		r.tb.Fatal(err)
	}
	return data
}

func (r *Run) put(name string, data []byte) artifact.Ref {
	r.tb.Helper()
	ref, err := r.Store.Put(r.tb.Context(), name, data)
	if err != nil {
		r.tb.Fatal(err)
	}
	return ref
}

func (r *Run) json(name string, v any) artifact.Ref {
	r.tb.Helper()
	ref, err := artifact.PutJSON(r.tb.Context(), r.Store, name, v)
	if err != nil {
		r.tb.Fatal(err)
	}
	return ref
}
