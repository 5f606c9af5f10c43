package rl

// Rule names an importance-weight rule f(p/q).
type Rule string

// The rules.
const (
	RuleNone Rule = "none" // f = 1
	RuleTIS  Rule = "tis"  // f(r) = min(r, Cap)
	RuleBand Rule = "band" // f(r) = r inside [Lo, Hi], else 0
)

// Centering names the form of the Score-Centering correction.
type Centering string

// The forms.
const (
	CenteringOff          Centering = "off"          // plain REINFORCE (with the rule's weight)
	CenteringProportional Centering = "proportional" // exact head, tail modelled as proportional to the trainer's
	CenteringFull         Centering = "full"         // the record covers the whole vocabulary
)

// Objective is the loss of an update: the token-mean over the global batch of the loss of each token.
type Objective struct {
	// Supervised selects the negative log-likelihood of masked tokens (weights: the sequence's advantage,
	// usually 1) and ignores the sampler's record.
	Supervised bool      `json:"supervised,omitempty"`
	Centering  Centering `json:"centering"`
	Rule       Rule      `json:"rule"`
	Cap        float64   `json:"cap,omitempty"`   // RuleTIS; default 2
	Lo         float64   `json:"lo,omitempty"`    // RuleBand; default 0.5
	Hi         float64   `json:"hi,omitempty"`    // RuleBand; default 5
	TopK       int       `json:"top_k,omitempty"` // width of the record that centering needs
}

// AdamW are the optimiser settings of one update.
type AdamW struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Epsilon      float64 `json:"epsilon"`
	WeightDecay  float64 `json:"weight_decay"`
	// ClipNorm is the largest global gradient norm; 0 turns clipping off.
	ClipNorm float64 `json:"clip_norm"`
}
