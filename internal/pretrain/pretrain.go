package pretrain

import (
	"context"
	"encoding/json"
	"iter"
	"math"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// Options of a warm start.
type Options struct {
	Seed       uint64
	Noise      demo.Noise
	Vocabulary int // tokens
	Model      model.Config
	// ShortSteps see conversations without the tool section, FullSteps the prompt of a run.
	ShortSteps, FullSteps int
	Batch                 int     // examples a step
	LearningRate          float64 // falls linearly to a tenth of it
	MicroTokens           int     // tokens of a micro-batch
	NewTrainer            func(model.Config, *model.Weights) (engine.Trainer, error)
	// Progress hears of every step; it may be nil.
	Progress func(step, steps int, loss float64)
}

// Default returns the options of the bundled model: 0.9 M parameters.
func Default() Options {
	return Options{
		Seed: 42, Noise: demo.DefaultNoise(), Vocabulary: 576,
		Model: model.Config{
			Vocab: 576, Hidden: 128, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 384,
			MaxPosition: 1024, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
		},
		ShortSteps: 900, FullSteps: 250, Batch: 64, LearningRate: 2e-3, MicroTokens: 4096,
	}
}

// Larger returns the options of a model of 22 M parameters, for a GPU: the same corpus, four times the width.
func Larger() Options {
	o := Default()
	o.Model.Hidden, o.Model.Layers, o.Model.Heads, o.Model.KVHeads, o.Model.HeadDim, o.Model.Intermediate = 512, 7, 4, 2, 128, 1536
	o.ShortSteps, o.FullSteps, o.LearningRate, o.MicroTokens = 600, 300, 6e-4, 16384
	return o
}

// warmup is the number of steps in which the learning rate rises.
const warmup = 50

// AddedTokens are the control tokens of the small tokenizer, in Qwen's order.
func AddedTokens() []tokenizer.Added {
	return []tokenizer.Added{
		{Text: chat.EndOfText, Special: true},
		{Text: chat.TurnStart, Special: true},
		{Text: chat.TurnEnd, Special: true},
		{Text: chat.CallOpen},
		{Text: chat.CallClose},
		{Text: chat.ReplyOpen},
		{Text: chat.ReplyClose},
		{Text: chat.ThinkOpen},
		{Text: chat.ThinkClose},
	}
}

// Tokenizer trains the small tokenizer and returns its tokenizer.json.
func Tokenizer(o Options) ([]byte, error) {
	parts, err := chat.Render([]chat.Message{{Role: "system", Content: chat.SystemLine}, {Role: "user"}},
		chat.Options{Tools: []json.RawMessage{json.RawMessage(chat.ToolSchema)}, Generate: true, NoThinking: true})
	if err != nil {
		return nil, err
	}
	const weight = 40 // the fixed text stands in every prompt
	return tokenizer.Train(func(yield func(string) bool) {
		for range weight {
			if !yield(chat.Text(parts)) {
				return
			}
		}
		demo.TokenizerCorpus(o.Seed)(yield)
	}, o.Vocabulary, AddedTokens())
}

// Run trains and returns the FP32 weights and the tokenizer.json. Errors: Invalid, Numeric, and the context's.
func Run(ctx context.Context, o Options) (*model.Weights, []byte, error) {
	tokJSON, err := Tokenizer(o)
	if err != nil {
		return nil, nil, err
	}
	tok, err := tokenizer.Parse(tokJSON)
	if err != nil {
		return nil, nil, err
	}
	if tok.Size() > o.Model.Vocab {
		return nil, nil, fault.New(fault.Invalid, "pretrain.Run", "the tokenizer has %d tokens, the model %d", tok.Size(), o.Model.Vocab)
	}
	w := model.NewWeights(o.Model)
	w.Init(o.Seed, 0.02)
	trainer, err := o.NewTrainer(o.Model, w)
	if err != nil {
		return nil, nil, err
	}
	defer trainer.Close() //nolint:errcheck // memory only
	next, stop := iter.Pull(demo.Corpus(o.Seed, o.Noise))
	defer stop()
	steps := o.ShortSteps + o.FullSteps
	for step := range steps {
		b, err := batch(o, tok, next, step)
		if err != nil {
			return nil, nil, err
		}
		m, err := trainer.Update(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		if o.Progress != nil {
			o.Progress(step+1, steps, m.Loss)
		}
	}
	return trainer.State().Master, tokJSON, nil
}

// batch renders the next examples.
func batch(o Options, tok *tokenizer.Tokenizer, next func() (demo.Example, bool), step int) (engine.Batch, error) {
	b := engine.Batch{Objective: rl.Objective{Supervised: true}, Optim: optim(o, step)}
	size := math.MaxInt
	for i := range o.Batch {
		e, ok := next()
		if !ok {
			return engine.Batch{}, fault.New(fault.Internal, "pretrain.batch", "the corpus ended")
		}
		s, err := sequence(tok, e, step >= o.ShortSteps)
		if err != nil {
			return engine.Batch{}, err
		}
		if size+len(s.Tokens) > o.MicroTokens || size == math.MaxInt {
			b.Plan.MicroBatches, size = append(b.Plan.MicroBatches, nil), 0
		}
		size += len(s.Tokens)
		last := len(b.Plan.MicroBatches) - 1
		b.Plan.MicroBatches[last] = append(b.Plan.MicroBatches[last], i)
		b.Sequences = append(b.Sequences, s)
	}
	return b, nil
}

func optim(o Options, step int) rl.AdamW {
	a := rl.DefaultAdamW()
	a.LearningRate = o.LearningRate * min(1, float64(step+1)/warmup) * (1 - 0.9*float64(step)/float64(o.ShortSteps+o.FullSteps))
	a.Beta2, a.WeightDecay = 0.99, 0.01
	return a
}

// sequence renders an example as the agent's loop would record it: assistant text and its end are trained, prompt
// and tool answers are not.
func sequence(tok *tokenizer.Tokenizer, e demo.Example, full bool) (engine.Sequence, error) {
	var ids []int32
	var err error
	if full {
		ids, err = chat.Prompt(tok, e.Statement, true)
	} else {
		var parts []tokenizer.Part
		parts, err = chat.Render([]chat.Message{{Role: "user", Content: e.Statement}}, chat.Options{Generate: true, NoThinking: true})
		ids = tok.EncodeParts(parts)
	}
	if err != nil {
		return engine.Sequence{}, err
	}
	mask := make([]bool, len(ids))
	end, _ := tok.ID(chat.TurnEnd)
	for _, t := range e.Turns {
		part := tok.EncodeParts(chat.ToolReply(shown(t.Content), true))
		sampled := t.Role == "assistant"
		if sampled {
			part = append(tok.Encode(t.Content), end)
		}
		ids = append(ids, part...)
		for range part {
			mask = append(mask, sampled)
		}
	}
	n := len(ids)
	return engine.Sequence{
		Tokens: ids, Mask: mask, LogProbs: make([]float32, n), Advantage: 1, Temperature: 1,
	}, nil
}

// shown is an observation as the tool loop shows it: without line breaks at the end.
func shown(s string) string {
	for len(s) > 0 && s[len(s)-1] == '\n' {
		s = s[:len(s)-1]
	}
	return s
}
