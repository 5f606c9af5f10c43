package transcript

import (
	"github.com/steadyrl/steady/internal/batch"
	"github.com/steadyrl/steady/internal/trajectory"
)

// Transcript is a trajectory in words. Fields that do not apply are absent from JSON.
type Transcript struct {
	Run        string `json:"run"`
	Lineage    string `json:"lineage"`
	Group      *int   `json:"group,omitempty"` // of a training trajectory
	Fate       string `json:"fate,omitempty"`
	Validation string `json:"validation,omitempty"` // its name, for a trajectory of a validation
	Split      string `json:"split"`
	ProblemID  string `json:"problem_id"`
	Problem    int    `json:"problem"` // index in the split
	Sample     int    `json:"sample"`  // number in the group
	Tag        int    `json:"tag"`     // step in progress at submission
	Submission int    `json:"submission"`

	End            string  `json:"end"` // empty while it is not finished
	PromptTokens   int     `json:"prompt_tokens"`
	ResponseTokens int     `json:"response_tokens"`
	SampledTokens  int     `json:"sampled_tokens"`
	MinVersion     *int    `json:"min_version,omitempty"` // policy versions of sampled tokens
	MaxVersion     *int    `json:"max_version,omitempty"`
	Seconds        float64 `json:"seconds"`

	Verdict   *Verdict `json:"verdict,omitempty"` // once it was judged
	Advantage *float64 `json:"advantage,omitempty"`

	Segments []Segment `json:"segments"`
	Tokens   *Tokens   `json:"tokens,omitempty"` // see WithTokens

	source *trajectory.Trajectory
}

// Verdict is the judge's word.
type Verdict struct {
	Reward float64 `json:"reward"`
	Kind   string  `json:"kind"`
	Passed int     `json:"passed"`
	Total  int     `json:"total"`
}

// Who wrote a segment.
const (
	Prompt = "prompt"
	Model  = "model"  // sampled: what trains
	Answer = "answer" // the answer to a call, with the template's text around it; never trains
)

// Segment is a stretch of tokens of one origin. The texts of all segments, joined, are that of the trajectory, but for
// characters whose bytes lie in two of them.
type Segment struct {
	Origin  string           `json:"origin"`
	Turn    int              `json:"turn"`  // assistant turn, from 0; -1 for the prompt
	Begin   int              `json:"begin"` // first token
	End     int              `json:"end"`   // one after the last
	Text    string           `json:"text"`
	Seconds float64          `json:"seconds,omitempty"` // of generation
	Call    *trajectory.Call `json:"call,omitempty"`    // that the turn ended with
}

// Tokens are the arrays that train, all of one length.
type Tokens struct {
	IDs      []int32   `json:"ids"`
	Mask     []bool    `json:"mask"`
	LogProbs []float32 `json:"log_probs"`
	Versions []int32   `json:"versions"`
}

// WithTokens adds the arrays of tokens.
func (t *Transcript) WithTokens() *Transcript {
	s := t.source
	t.Tokens = &Tokens{IDs: s.IDs(), Mask: s.Mask(), LogProbs: s.LogProbs(), Versions: s.Versions()}
	return t
}

func (r *Run) transcript(t *trajectory.Trajectory, v *batch.Verdict) *Transcript {
	out := &Transcript{
		Run: r.l.Run, Lineage: r.l.Lineage, Split: t.Split, ProblemID: t.ProblemID, Problem: t.Problem, Sample: t.Sample, Tag: t.Tag, Submission: t.Submission,
		End: string(t.End), PromptTokens: t.Prompt(), ResponseTokens: t.Response(), SampledTokens: t.Sampled(), Seconds: t.Seconds, source: t,
	}
	if lo, hi, ok := t.VersionRange(); ok {
		out.MinVersion, out.MaxVersion = &lo, &hi
	}
	if v != nil {
		out.Verdict = &Verdict{v.Reward, string(v.Kind), v.Passed, v.Total}
	}
	add := func(origin string, turn, begin, end int) *Segment {
		out.Segments = append(out.Segments, Segment{Origin: origin, Turn: turn, Begin: begin, End: end, Text: r.tok.Decode(t.IDs()[begin:end], false)})
		return &out.Segments[len(out.Segments)-1]
	}
	add(Prompt, -1, 0, t.Prompt())
	for i, u := range t.Turns {
		s := add(Model, i, u.Begin, u.End)
		s.Seconds, s.Call = u.Seconds, u.Call
		next := t.Len()
		if i+1 < len(t.Turns) {
			next = t.Turns[i+1].Begin
		}
		if next > u.End {
			add(Answer, i, u.End, next)
		}
	}
	return out
}
