package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Tool runs programs. An error is an infrastructure fault and ends the loop; what the program did is data.
type Tool interface {
	RunPython(ctx context.Context, code, stdin string) (ToolResult, error)
}

// ToolResult is what a program did.
type ToolResult struct {
	Stdout, Stderr string
	Outcome        string // "ok", or why it failed
	Started        bool   // a process really started
	Seconds        float64
	QueueSeconds   float64 // before that, waiting for a free core
}

// Options of a loop.
type Options struct {
	Sampler   engine.Sampler
	Tokenizer *tokenizer.Tokenizer
	Tool      Tool
	// MaxTurns is the number of assistant turns.
	MaxTurns int
	// Budgets in tokens: MaxTurn for what is sampled in one turn (0: no budget of its own), MaxResponse for everything after
	// the prompt, MaxTotal for the prompt too. What has exactly that length is allowed.
	MaxTurn, MaxResponse, MaxTotal int
	// OutputLimit is the number of characters (not bytes or tokens) of a tool's output that are shown; the middle of more is
	// cut out, which a line in its place says.
	OutputLimit int
	Sampling    engine.Sampling
	Random      rng.Stream
	Pin         *int // the only policy version that may answer
	NoThinking  bool
}

// maxParseFailures is the number of unreadable calls in a row that ends a trajectory.
const maxParseFailures = 3

// StopIDs returns the ids that end an assistant turn, the end-of-turn token first. Errors: Invalid (the tokenizer has no end-of-turn token).
func StopIDs(t *tokenizer.Tokenizer) ([]int32, error) {
	var ids []int32
	for _, name := range []string{chat.TurnEnd, chat.EndOfText} {
		id, ok := t.ID(name)
		if !ok {
			return nil, fault.New(fault.Invalid, "agent.StopIDs", "the tokenizer has no token %s", name)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Run brings t to an end, from whatever it holds. After every token and every tool call it calls progress, which
// may flush t; its error ends the loop.
//
// Errors: Invalid (options), Internal (a sampler that adds nothing), those of the sampler, the tool and progress; t then
// holds what was finished and may be run again. Idempotence: a trajectory that has ended is left as it is.
// Determinism: for the same weights, t and options the same tokens, wherever an earlier run stopped.
func Run(ctx context.Context, t *trajectory.Trajectory, o Options, progress func(*trajectory.Trajectory) error) error {
	stops, err := o.check()
	if err != nil {
		return err
	}
	l := &loop{Options: o, t: t, stops: stops, progress: progress}
	for t.End == "" {
		if err := l.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// check returns the ids that end a turn.
func (o Options) check() ([]int32, error) {
	switch {
	case o.Sampler == nil || o.Tokenizer == nil || o.Tool == nil:
		return nil, fault.New(fault.Invalid, "agent.Run", "sampler, tokenizer or tool is missing")
	case o.MaxTurns < 1 || o.MaxTurn < 0 || o.MaxResponse < 1 || o.MaxTotal < 1 || o.OutputLimit < 0:
		return nil, fault.New(fault.Invalid, "agent.Run", "limits of %d turns, %d tokens a turn, %d response tokens, %d tokens in all, %d characters of output",
			o.MaxTurns, o.MaxTurn, o.MaxResponse, o.MaxTotal, o.OutputLimit)
	}
	return StopIDs(o.Tokenizer)
}

type loop struct {
	Options
	t        *trajectory.Trajectory
	stops    []int32
	progress func(*trajectory.Trajectory) error
	readings []reading // of the turns that ended, in order; see reading
}

// reading is what a turn says, and the call in it.
type reading struct {
	text string
	call *call
}

// room is the number of tokens that may still be added, and the end of a trajectory that needs more.
func (l *loop) room() (int, trajectory.End) {
	response, total := l.MaxResponse-l.t.Response(), l.MaxTotal-l.t.Len()
	if total < response {
		return total, trajectory.EndTotal
	}
	return response, trajectory.EndLength
}

// turnRoom is room for what is sampled in the newest turn.
func (l *loop) turnRoom() (int, trajectory.End) {
	room, end := l.room()
	u := l.t.Turns[len(l.t.Turns)-1]
	if left := l.MaxTurn - (u.End - u.Begin); l.MaxTurn > 0 && left < room {
		return left, trajectory.EndTurnLength
	}
	return room, end
}

// advance does the next thing: open a turn, sample its rest, or act on it.
func (l *loop) advance(ctx context.Context) error {
	if n := len(l.t.Turns); n == 0 || l.t.Turns[n-1].Call != nil {
		room, end := l.room()
		if room <= 0 {
			l.t.End = end
			return nil
		}
		l.t.BeginTurn()
		return nil
	}
	if l.stopped() {
		return l.act(ctx)
	}
	room, end := l.turnRoom()
	if room <= 0 {
		l.t.End = end
		return nil
	}
	return l.sample(ctx, room)
}

// stopped reports whether the newest turn ended with a stop token.
func (l *loop) stopped() bool {
	u := l.t.Turns[len(l.t.Turns)-1]
	return u.End > u.Begin && slices.Contains(l.stops, l.t.IDs()[u.End-1])
}

func (l *loop) sample(ctx context.Context, room int) error {
	began := time.Now()
	defer func() {
		s := time.Since(began).Seconds()
		l.t.Seconds += s
		l.t.Turns[len(l.t.Turns)-1].Seconds += s
	}()
	before := l.t.Len()
	_, err := l.Sampler.Generate(ctx, engine.Request{
		Tokens: slices.Clone(l.t.IDs()), MaxNew: room, Stop: l.stops, Sampling: l.Sampling, Random: l.Random, PinVersion: l.Pin,
	}, func(tok engine.Token) error {
		if err := l.t.AppendSampled(tok); err != nil {
			return err
		}
		return l.progress(l.t)
	})
	if err == nil && l.t.Len() == before {
		return fault.New(fault.Internal, "agent.Run", "the sampler ended without a token")
	}
	return err
}

// act decides what follows a turn that the model ended.
func (l *loop) act(ctx context.Context) error {
	room, _ := l.room()
	u := &l.t.Turns[len(l.t.Turns)-1]
	c := l.reading(len(l.t.Turns) - 1).call
	switch {
	case c == nil:
		l.t.End = trajectory.EndStop
		return nil
	case l.t.IDs()[u.End-1] != l.stops[0]: // the end of the text, not of the turn: nothing can follow
		l.leave(u, c, trajectory.EndStop)
		return nil
	case len(l.t.Turns) >= l.MaxTurns:
		l.leave(u, c, trajectory.EndTurns)
		return nil
	case room <= 0: // no answer would fit
		l.leave(u, c, trajectory.EndTool)
		return nil
	}
	answer, done, err := l.answer(ctx, c)
	if err != nil {
		return err
	}
	done.Repeated = l.repeats()
	u.Call = &done
	l.t.Seconds += done.Seconds
	if l.failures() >= maxParseFailures {
		l.t.End = trajectory.EndParse
		return nil
	}
	ids := l.Tokenizer.EncodeParts(chat.ToolReply(answer, l.NoThinking))
	if len(ids) > room {
		l.t.End = trajectory.EndTool
		return nil
	}
	l.t.AppendInserted(ids)
	return l.progress(l.t)
}

// leave ends the trajectory without running a call.
func (l *loop) leave(u *trajectory.Turn, c *call, end trajectory.End) {
	u.Call = &trajectory.Call{Status: "not_run", Ignored: c.ignored, Repeated: l.repeats()}
	l.t.End = end
}

// reading returns what turn i says, which has ended. Every turn is decoded and parsed once.
func (l *loop) reading(i int) reading {
	for k := len(l.readings); k <= i; k++ {
		text, odd := written(l.t, l.Tokenizer, k)
		l.readings = append(l.readings, reading{text, parse(text, odd)})
	}
	return l.readings[i]
}

// repeats reports whether an earlier turn had the call of the newest turn.
func (l *loop) repeats() bool {
	last := len(l.t.Turns) - 1
	newest := l.reading(last)
	c := newest.call
	return slices.ContainsFunc(l.readings[:last], func(r reading) bool {
		old := r.call
		switch {
		case old == nil:
			return false
		case c.status == "" && old.status == "":
			return old.code == c.code && old.stdin == c.stdin
		}
		return c.status != "" && old.status != "" && r.text == newest.text
	})
}

// failures counts the unreadable calls at the end.
func (l *loop) failures() int {
	n := 0
	for _, u := range slices.Backward(l.t.Turns) {
		if u.Call == nil || u.Call.Status == "ran" {
			break
		}
		n++
	}
	return n
}

// answer runs a call and returns what the model is shown.
func (l *loop) answer(ctx context.Context, c *call) (string, trajectory.Call, error) {
	done := trajectory.Call{Status: c.status, Ignored: c.ignored}
	text := ""
	if c.status != "" {
		text = "error: " + c.problem
	} else {
		res, err := l.Tool.RunPython(ctx, c.code, c.stdin)
		if err != nil {
			return "", done, err
		}
		done.Status, done.Started, done.Outcome, done.Seconds, done.QueueSeconds = "ran", res.Started, res.Outcome, res.Seconds, res.QueueSeconds
		text, done.CutCharacters = cutMiddle(show(res), l.OutputLimit)
		done.Cut = done.CutCharacters > 0
	}
	if c.ignored > 0 {
		text += fmt.Sprintf("\n(calls ignored: %d; one call a turn is run, the first)", c.ignored)
	}
	return text, done, nil
}

// show is the standard output, and what went wrong if something did: the outcome and the last line of standard error.
func show(r ToolResult) string {
	out := strings.TrimRight(r.Stdout, "\n")
	if r.Outcome == "ok" {
		if out == "" {
			return "(no output)"
		}
		return out
	}
	note := r.Outcome
	lines := strings.Split(strings.TrimRight(r.Stderr, "\n"), "\n")
	if last := lines[len(lines)-1]; last != "" {
		note += ": " + last
	}
	if out == "" {
		return note
	}
	return out + "\n" + note
}

// cutMiddle keeps the first and the last half of limit characters, and says between them how many it cut out.
func cutMiddle(s string, limit int) (shown string, cut int) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if cut = utf8.RuneCountInString(s) - limit; cut <= 0 {
		return s, 0
	}
	r := []rune(s)
	return fmt.Sprintf("%s\n[%d characters cut from the middle]\n%s", string(r[:(limit+1)/2]), cut, string(r[len(r)-limit/2:])), cut
}

// LastTurn returns the text of the last assistant turn, which alone is judged. Control tokens that were sampled stand in it as text,
// but for the one that ended the turn.
func LastTurn(t *trajectory.Trajectory, tok *tokenizer.Tokenizer) string {
	if len(t.Turns) == 0 {
		return ""
	}
	text, _ := written(t, tok, len(t.Turns)-1)
	return text
}

// written is what turn i says, without the token that ended it, and the places that are not text.
func written(t *trajectory.Trajectory, tok *tokenizer.Tokenizer, i int) (string, []tokenizer.Odd) {
	ids := t.IDs()[t.Turns[i].Begin:t.Turns[i].End]
	if n := len(ids); n > 0 {
		if a, ok := tok.Added(ids[n-1]); ok && (a.Text == chat.TurnEnd || a.Text == chat.EndOfText) {
			ids = ids[:n-1]
		}
	}
	return tok.Written(ids)
}
