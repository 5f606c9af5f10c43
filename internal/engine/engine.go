// Package engine says what a Sampler and a Trainer are. Backends live in the sub-packages: ref (naive
// Go, the oracle), cpu (fast Go), cuda (build tag cuda); enginetest holds the one conformance suite
// that drives all of them through these interfaces.
//
// The boundary is small on purpose: token ids in, token ids with their record out; a batch in, metrics
// and a digest out; weights by name both ways. Nothing here knows text, rewards, files or Temporal.
package engine

import (
	"context"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/rng"
)

// Sampling says how tokens are drawn and what is recorded of each.
type Sampling struct {
	// Temperature divides the logits before the softmax; it must be > 0. 1 is the model itself.
	Temperature float64
	// TopK is the width of the record of most probable tokens, 0 for no record. It never
	// truncates the distribution that is sampled. It may not exceed the vocabulary.
	TopK int
}

// Request asks a Sampler to continue one sequence.
type Request struct {
	// Tokens is the whole prefix: prompt and everything generated or inserted so far.
	Tokens []int32
	// MaxNew is the largest number of tokens to sample; it must be >= 1.
	MaxNew int
	// Stop lists token ids that end the sequence; a sampled stop token is part of the result.
	Stop []int32
	Sampling
	// Random draws the token at absolute position p of the sequence (0 is the first prompt token)
	// from Random.Uniform(p), whatever the batch, thread, attempt or worker.
	Random rng.Stream
	// PinVersion, if not nil, is the only policy version that may answer. A Sampler at another
	// version returns an error of kind Stale, also when the version changes half-way.
	PinVersion *int
}

// Token is one sampled token and its record.
type Token struct {
	ID int32
	// LogProb is the natural logarithm of the probability with which ID was drawn, temperature included.
	LogProb float32
	// Entropy is the entropy in nats of the distribution that ID was drawn from.
	Entropy float32
	// Version is the policy version that sampled the token.
	Version int
	// TopIDs and TopLogProbs have length Sampling.TopK: the most probable tokens, most probable first,
	// ties by the smaller id, and their log-probabilities normalised over the full vocabulary. The slices belong to the receiver.
	TopIDs      []int32
	TopLogProbs []float32
}

// Finish says why a Sampler ended a sequence.
type Finish string

// Reasons of a Sampler to end.
const (
	FinishStop   Finish = "stop"   // a stop token was sampled
	FinishLength Finish = "length" // MaxNew tokens were sampled
)

// Sampler generates tokens for many sequences at once.
//
// Concurrency: all methods may be called from any goroutine. Running requests form one batch; they
// join and leave between tokens (continuous batching). The same request under the same weights yields
// the same tokens and the same record bits, whatever else is in the batch and however many threads run.
type Sampler interface {
	// Generate continues req.Tokens and calls sink for every token in order, from one goroutine,
	// before the next token of this sequence is sampled. An error of sink or of ctx ends the request and
	// is returned. Errors of the engine have a fault kind: Invalid (bad request), Stale (pinned version
	// is not live), Exhausted (context longer than the model's), Numeric (a logit is not finite).
	Generate(ctx context.Context, req Request, sink func(Token) error) (Finish, error)
	// Score returns the log-probability of each of tokens[1:] given its prefix at temperature 1, by
	// the same arithmetic as Generate: the probe with which a loaded version is verified.
	Score(ctx context.Context, tokens []int32) ([]float32, error)
	// SetWeights swaps to a version between two tokens. Requests in flight keep their tokens, their
	// prefix is prefilled again under the new weights, and later tokens carry the new version.
	// It returns when the version is live. The weights are copied; w may be reused.
	SetWeights(ctx context.Context, version int, w *model.Weights) error
	// Version returns the live policy version, -1 before the first SetWeights.
	Version() int
	// Close stops the engine; running requests end with an error of kind Lost. It may be called twice.
	Close() error
}

// Sequence is one trajectory as the trainer sees it. T is the number of tokens.
type Sequence struct {
	Tokens []int32 // [T] prompt and response
	// Mask [T] is true where the token was sampled by the model and enters the loss. Mask[0] is false.
	Mask []bool
	// LogProbs [T] is the sampler's log-probability; ignored where Mask is false.
	LogProbs []float32
	// TopIDs and TopLogProbs [T*TopK] are the sampler's record; ignored where Mask is false.
	TopIDs      []int32
	TopLogProbs []float32
	TopK        int
	// Advantage multiplies every masked token. 0 is legal and costs no work that changes results.
	Advantage float32
	// Temperature the sequence was sampled with; the trainer divides its logits by it.
	Temperature float64
}

// Plan splits a batch into micro-batches; it is part of the result, because sums are formed in its order.
type Plan struct {
	// MicroBatches lists indices into Batch.Sequences, each exactly once, in the order of computation.
	MicroBatches [][]int `json:"micro_batches"`
}

// Within divides the micro-batches that have more tokens than budget, in their order, as far as that can be done: sequences are not
// divided. lengths are those of Batch.Sequences, in tokens.
func (p Plan) Within(budget int, lengths []int) Plan {
	var out Plan
	for _, m := range p.MicroBatches {
		start, size := 0, 0
		for i, sequence := range m {
			if i > start && size+lengths[sequence] > budget {
				out.MicroBatches = append(out.MicroBatches, m[start:i])
				start, size = i, 0
			}
			size += lengths[sequence]
		}
		out.MicroBatches = append(out.MicroBatches, m[start:])
	}
	return out
}

// Divisible is the number of tokens of the largest micro-batch with more than one sequence; 0 if there is none.
func (p Plan) Divisible(lengths []int) int {
	most := 0
	for _, m := range p.MicroBatches {
		size := 0
		for _, sequence := range m {
			size += lengths[sequence]
		}
		if len(m) > 1 {
			most = max(most, size)
		}
	}
	return most
}

// Batch is everything that one update depends on besides the trainer's state.
type Batch struct {
	Sequences []Sequence
	Objective rl.Objective
	// Optim holds the learning rate and the other AdamW settings of this update.
	Optim rl.AdamW
	Plan  Plan
}

// StepMetrics are sums and means over one update. Fields that are undefined for the batch are NaN
// here; the caller turns them into absent values.
type StepMetrics struct {
	Tokens       int     // masked tokens in the batch, the denominator of the loss
	Loss         float64 // token-mean loss (compare objectives by gradient, never by this value)
	GradNorm     float64 // global norm before clipping
	ClipFactor   float64 // 1 if not clipped
	Correction   float64 // token-mean of SC's C (NaN when SC is off)
	CorrectionA  float64 // token-mean of |C|*|advantage|
	Uncovered    float64 // token-mean of 1 - Q, the sampler mass outside the record
	TrainerTail  float64 // token-mean of 1 - P
	Entropy      float64 // token-mean entropy of the trainer's distribution, nats
	LogProbGap   float64 // token-mean of |log p - log q| on sampled tokens
	KL           float64 // token-mean of log q - log p on sampled tokens
	OutsideShare float64 // share of sampled tokens outside their record
	FloorShare   float64 // share of tokens for which a tail floor was active
	MaxAlpha     float64 // largest tail coefficient
}

// Trainer holds FP32 master weights and optimiser state and applies updates to them. Its forward pass
// uses the BF16 rounding of the master weights, which are also the published weights.
//
// Concurrency: calls must not overlap.
type Trainer interface {
	// Update computes the gradient of batch, clips it, and applies one AdamW step. Results are bitwise
	// reproducible for the same state and batch, for any number of threads. An error leaves the
	// state as it was: Invalid (wrong shapes, record rejected), Numeric (loss or gradient not finite), Exhausted (a micro-batch
	// does not fit in the device's memory; a plan of smaller ones may).
	Update(ctx context.Context, batch Batch) (StepMetrics, error)
	// Steps returns the number of updates applied since the initial weights.
	Steps() int
	// Published returns the BF16-rounded weights (values exactly representable in BF16, stored as
	// float32). The result is a copy.
	Published() *model.Weights
	// State returns a copy of the full state.
	State() *State
	// SetState replaces the state by a copy of s; shapes must match (Invalid).
	SetState(s *State) error
	// Close frees the trainer's memory.
	Close() error
}

// State is a trainer's full state: what a checkpoint holds.
type State struct {
	Master *model.Weights // FP32 master weights
	M, V   *model.Weights // first and second Adam moments; nil: all zero
	Steps  int            // updates applied
}

// StatePart names a part of a State.
type StatePart string

// The parts of a state.
const (
	Master       StatePart = "master"
	FirstMoment  StatePart = "m"
	SecondMoment StatePart = "v"
)

// StateParts lists the parts in the order of digests and files.
func StateParts() []StatePart { return []StatePart{Master, FirstMoment, SecondMoment} }

// StateReader reads a state tensor by tensor. A Trainer implements it where a second copy of a large state would not fit in memory.
type StateReader interface {
	// ReadState fills into with elements from index from on of tensor i, in module order, of a part. Calls must not overlap. Errors: Lost (the device
	// failed, the trainer is closed), Internal (there is no such part, tensor or element).
	ReadState(p StatePart, i, from int, into []float32) error
}

// StateLoader is implemented by a Trainer that takes a state piece by piece, where a second copy of a large state would not fit in memory.
type StateLoader interface {
	// LoadState replaces the state by what load gives to put: every element once, in any order; it is that after a number of updates. data is good until
	// put returns. Calls of put must not overlap. After an error, which may be load's, the trainer is good for nothing but Close.
	LoadState(updates int, load func(put PutState) error) error
}

// PutState takes elements from index from on of tensor i, in module order, of a part. Errors: as for ReadState.
type PutState func(p StatePart, i, from int, data []float32) error

// LoadState gives a trainer of model c the state that load delivers: piece by piece where the trainer can, else as a whole.
func LoadState(t Trainer, c model.Config, updates int, load func(put PutState) error) error {
	if l, ok := t.(StateLoader); ok {
		return l.LoadState(updates, load)
	}
	s := &State{Master: model.NewWeights(c), M: model.NewWeights(c), V: model.NewWeights(c), Steps: updates}
	if err := load(s.put); err != nil {
		return err
	}
	return t.SetState(s)
}

func (s *State) put(p StatePart, i, from int, data []float32) error {
	t, err := s.tensor("engine.LoadState", p, i, from, len(data))
	copy(t, data)
	return err
}

// How far a log-probability of one engine may be from another's for the same weights and tokens, in nats, before the model that ran is taken for another one. It
// is no claim of precision: 36 layers of random weights in BF16 are off by 0.02 in the mean and by 0.12 at most of 4,000 tokens, and PyTorch's BF16 by
// twice that (docs/benchmarks/cuda.md); a wrong layer, base or weight moves some by whole nats.
const (
	FP32Distance = 0.05
	BF16Distance = 0.5
)

// Chooser is implemented by a Trainer whose results depend on what it measured, such as which of several algorithms a product runs with.
type Chooser interface {
	// Choices are those made so far, in a form that the same engine reads; empty if there are none. Equal choices have equal bytes.
	Choices() []byte
	// SetChoices makes choices of an earlier process binding, over those of this one. Choices that were made on another kind of device are
	// ignored. Errors: Corrupt.
	SetChoices(data []byte) error
}

// ReadState implements StateReader. It fails for a nil state, too, which a Trainer gives after a failure of its device (Lost).
func (s *State) ReadState(p StatePart, i, from int, into []float32) error {
	const op = "engine.ReadState"
	if s == nil {
		return fault.New(fault.Lost, op, "the trainer has no state any more")
	}
	t, err := s.tensor(op, p, i, from, len(into))
	if copy(into, t) == 0 {
		clear(into) // moments that have not begun
	}
	return err
}

// tensor returns n elements from index from on of a tensor; none if the state has no such moments, which then are all zero.
func (s *State) tensor(op string, p StatePart, i, from, n int) ([]float32, error) {
	w, ok := map[StatePart]*model.Weights{Master: s.Master, FirstMoment: s.M, SecondMoment: s.V}[p]
	switch {
	case !ok:
		return nil, fault.New(fault.Internal, op, "a state has no part %q", p)
	case i < 0 || i >= len(s.Master.Data) || from < 0 || n < 0 || from+n > len(s.Master.Data[i]):
		return nil, fault.New(fault.Internal, op, "the model has no elements %d to %d of tensor %d", from, from+n, i)
	case w == nil:
		return nil, nil
	}
	return w.Data[i][from : from+n], nil
}

// Moments returns the first and second moments; of a state without, new ones that are all zero.
func (s *State) Moments() (m, v *model.Weights) {
	if m = s.M; m == nil {
		m = model.NewWeights(s.Master.Config)
	}
	if v = s.V; v == nil {
		v = model.NewWeights(s.Master.Config)
	}
	return m, v
}

// ReaderOf returns a reader of the trainer's state as it is now: the trainer itself where it can, else a copy. An update ends
// what the reader is good for.
func ReaderOf(t Trainer) StateReader {
	if r, ok := t.(StateReader); ok {
		return r
	}
	return t.State()
}
