package trajectory

import (
	"fmt"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// Key says which trajectory this is.
type Key struct {
	ProblemID  string // id in the data set
	Problem    int    // index in its split
	Split      string // train or dev
	Group      int
	Sample     int // number in the group
	Tag        int // step in progress at submission
	Submission int // how often the problem was dropped before
}

// End says why a trajectory ended; empty while it has not.
type End string

// The ends.
const (
	EndStop       End = "stop"           // the model ended its turn without a call that is run
	EndTurnLength End = "turn_length"    // the budget of one turn was used up before the turn ended
	EndLength     End = "length"         // the budget of the response was used up
	EndTotal      End = "total_length"   // the budget of the whole trajectory, prompt included, was used up
	EndTool       End = "tool_budget"    // the answer to a call does not fit into what was left of these budgets
	EndTurns      End = "turns"          // the last allowed turn ended with a call, which is not run
	EndParse      End = "parse_failures" // too many turns in a row whose calls could not be run
)

// Ends lists every end once.
func Ends() []End {
	return []End{EndStop, EndTurnLength, EndLength, EndTotal, EndTool, EndTurns, EndParse}
}

// Cut reports whether a budget of tokens ended the trajectory.
func (e End) Cut() bool {
	return e == EndTurnLength || e == EndLength || e == EndTotal || e == EndTool
}

// Turn is one assistant turn.
type Turn struct {
	Begin   int     `json:"begin"` // first sampled token
	End     int     `json:"end"`   // one after the last
	Seconds float64 `json:"seconds"`
	Call    *Call   `json:"call,omitempty"`
}

// Call is what became of a tool call. Its answer are the tokens after the turn's End that are not sampled.
type Call struct {
	// Status is ran, malformed, unknown_tool, bad_arguments, in_thinking, or not_run.
	Status  string `json:"status"`
	Ignored int    `json:"ignored,omitempty"` // further calls of the turn
	Started bool   `json:"started"`           // a process really started
	Outcome string `json:"outcome,omitempty"`
	Cut     bool   `json:"cut,omitempty"` // the output was longer than shown
	// CutCharacters is how many characters were cut out of the middle of the output.
	CutCharacters int `json:"cut_characters,omitempty"`
	// Repeated is true if an earlier turn of the trajectory had the same call: equal code and input, or, where neither
	// could be read, equal text of the turn.
	Repeated bool    `json:"repeated,omitempty"`
	Seconds  float64 `json:"seconds"` // of the program, from the start of its interpreter
	// QueueSeconds is how long the program waited for a free core before that.
	QueueSeconds float64 `json:"queue_seconds,omitempty"`
}

// Trajectory is a growing or finished trajectory. It is not safe for concurrent use.
type Trajectory struct {
	Key
	Turns   []Turn
	End     End
	Seconds float64 // generation, tools included

	topK      int
	prompt    int
	sampled   int
	ids       []int32
	mask      []bool
	logProbs  []float32
	entropies []float32
	versions  []int32
	turn      []int32
	headIDs   []int32
	headLPs   []float32
}

// New returns a trajectory that holds a prompt. topK is the width of the record of sampled tokens.
func New(k Key, prompt []int32, topK int) *Trajectory {
	t := &Trajectory{Key: k, topK: topK}
	for _, id := range prompt {
		t.append(id, false, 0, 0, -1, -1, nil, nil)
	}
	t.prompt = len(prompt)
	return t
}

func (t *Trajectory) append(id int32, sampled bool, lp, entropy float32, version, turn int, headIDs []int32, headLPs []float32) {
	t.ids = append(t.ids, id)
	t.mask = append(t.mask, sampled)
	t.logProbs = append(t.logProbs, lp)
	t.entropies = append(t.entropies, entropy)
	t.versions = append(t.versions, int32(version)) //nolint:gosec // steps are far below
	t.turn = append(t.turn, int32(turn))            //nolint:gosec // turns are few
	if headIDs == nil {
		t.headIDs = append(t.headIDs, make([]int32, t.topK)...)
		t.headLPs = append(t.headLPs, make([]float32, t.topK)...)
	}
	t.headIDs = append(t.headIDs, headIDs...)
	t.headLPs = append(t.headLPs, headLPs...)
	if sampled {
		t.sampled++
	}
}

// AppendSampled adds a token that the model sampled in the newest turn, whose sampled tokens are one stretch. Errors:
// Invalid (its record has another width, or no turn is open at the end), and nothing is added.
func (t *Trajectory) AppendSampled(tok engine.Token) error {
	if n := len(t.Turns); n == 0 || t.Turns[n-1].End != len(t.ids) {
		return fault.New(fault.Invalid, "trajectory.AppendSampled", "no turn is open at token %d", len(t.ids))
	}
	if len(tok.TopIDs) != t.topK || len(tok.TopLogProbs) != t.topK {
		return fault.New(fault.Invalid, "trajectory.AppendSampled", "record of width %d and %d, want %d", len(tok.TopIDs), len(tok.TopLogProbs), t.topK)
	}
	ids, lps := tok.TopIDs, tok.TopLogProbs
	if t.topK == 0 {
		ids, lps = nil, nil
	}
	t.append(tok.ID, true, tok.LogProb, tok.Entropy, tok.Version, len(t.Turns)-1, ids, lps)
	t.Turns[len(t.Turns)-1].End = len(t.ids)
	return nil
}

// AppendInserted adds tokens that the model did not sample: separators, tool replies, the next turn's beginning.
func (t *Trajectory) AppendInserted(ids []int32) {
	for _, id := range ids {
		t.append(id, false, 0, 0, -1, len(t.Turns)-1, nil, nil)
	}
}

// BeginTurn opens an assistant turn at the end.
func (t *Trajectory) BeginTurn() {
	t.Turns = append(t.Turns, Turn{Begin: len(t.ids), End: len(t.ids)})
}

// Len is the number of tokens, Prompt that of the prompt, Response of everything after it, Sampled of those that the
// model sampled.
func (t *Trajectory) Len() int      { return len(t.ids) }
func (t *Trajectory) Prompt() int   { return t.prompt }
func (t *Trajectory) Response() int { return len(t.ids) - t.prompt }
func (t *Trajectory) Sampled() int  { return t.sampled }
func (t *Trajectory) TopK() int     { return t.topK }

// IDs are the token ids; the slice must not be changed.
func (t *Trajectory) IDs() []int32 { return t.ids }

// Mask is true where the token was sampled; Versions is the policy version of such a token, -1 elsewhere; Entropies
// and LogProbs are 0 elsewhere. The slices must not be changed.
func (t *Trajectory) Mask() []bool         { return t.mask }
func (t *Trajectory) Versions() []int32    { return t.versions }
func (t *Trajectory) LogProbs() []float32  { return t.logProbs }
func (t *Trajectory) Entropies() []float32 { return t.entropies }

// TurnIndex is the assistant turn that a token belongs to or follows, -1 in the prompt.
func (t *Trajectory) TurnIndex() []int32 { return t.turn }

// Head returns the record of token i.
func (t *Trajectory) Head(i int) (ids []int32, logProbs []float32) {
	return t.headIDs[i*t.topK : (i+1)*t.topK], t.headLPs[i*t.topK : (i+1)*t.topK]
}

// VersionRange returns the smallest and the largest version of a sampled token; ok is false if there is none.
func (t *Trajectory) VersionRange() (lo, hi int, ok bool) {
	for i, v := range t.versions {
		if !t.mask[i] {
			continue
		}
		if !ok || int(v) < lo {
			lo = int(v)
		}
		if !ok || int(v) > hi {
			hi = int(v)
		}
		ok = true
	}
	return lo, hi, ok
}

// ToolStarted reports whether a tool process really started.
func (t *Trajectory) ToolStarted() bool {
	for _, u := range t.Turns {
		if u.Call != nil && u.Call.Started {
			return true
		}
	}
	return false
}

// Sequence is the trajectory as a trainer sees it. The slices are shared.
func (t *Trajectory) Sequence(advantage float32, temperature float64) engine.Sequence {
	return engine.Sequence{
		Tokens: t.ids, Mask: t.mask, LogProbs: t.logProbs, TopIDs: t.headIDs, TopLogProbs: t.headLPs, TopK: t.topK,
		Advantage: advantage, Temperature: temperature,
	}
}

// Check reports arrays that disagree, as a file from elsewhere might have. Errors: Corrupt.
func (t *Trajectory) Check() error {
	if bad := t.disagreement(); bad != "" {
		return fault.New(fault.Corrupt, "trajectory.Check", "trajectory %s sample %d: %s", t.ProblemID, t.Sample, bad)
	}
	return nil
}

func (t *Trajectory) disagreement() string {
	n := len(t.ids)
	switch {
	case len(t.mask) != n || len(t.logProbs) != n || len(t.entropies) != n || len(t.versions) != n || len(t.turn) != n:
		return fmt.Sprintf("arrays of %d tokens have other lengths", n)
	case t.topK < 0 || len(t.headIDs) != len(t.headLPs) || t.topK == 0 && len(t.headIDs) > 0 || t.topK > 0 && (len(t.headIDs)/t.topK != n || len(t.headIDs)%t.topK != 0):
		return fmt.Sprintf("records of %d and %d values, the width is %d", len(t.headIDs), len(t.headLPs), t.topK)
	case t.prompt < 0 || t.prompt > n:
		return fmt.Sprintf("a prompt of %d of %d tokens", t.prompt, n)
	}
	last := t.prompt
	for i, u := range t.Turns {
		if u.Begin < last || u.End < u.Begin || u.End > n {
			return fmt.Sprintf("turn %d has the tokens %d to %d", i, u.Begin, u.End)
		}
		last = u.End
	}
	return t.tokenDisagreement()
}

// tokenDisagreement compares mask and turn index of every token with the turns.
func (t *Trajectory) tokenDisagreement() string {
	sampled, turn := 0, -1
	for i := range t.ids {
		for turn+1 < len(t.Turns) && t.Turns[turn+1].Begin <= i && i >= t.prompt {
			turn++
		}
		inside := turn >= 0 && i < t.Turns[turn].End
		if t.mask[i] != inside || int(t.turn[i]) != turn {
			return fmt.Sprintf("token %d of turn %d has mask %v and turn index %d", i, turn, t.mask[i], t.turn[i])
		}
		if inside {
			sampled++
		}
	}
	if sampled != t.sampled {
		return fmt.Sprintf("%d sampled tokens, recorded are %d", sampled, t.sampled)
	}
	return ""
}
