package study

import (
	"fmt"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// Limits say when a run counts as collapsed; 0 turns a sign off. The configuration's section collapse has their meaning.
type Limits struct {
	Share    float64 `json:"share"`
	GradNorm float64 `json:"grad_norm"`
	Tokens   float64 `json:"tokens"`
	NoAnswer float64 `json:"no_answer"`
}

// Collapse is a sign that a run collapsed, and the step from which on it was seen.
type Collapse struct {
	Step int    `json:"step"`
	Sign string `json:"sign"` // metric, gradient, tokens, no_answer or numeric
	Text string `json:"text"`
}

// Signs of a collapse.
const (
	SignMetric   = "metric"
	SignGradient = "gradient"
	SignTokens   = "tokens"
	SignNoAnswer = "no_answer"
	SignNumeric  = "numeric"
)

// collapseOf returns the signs of a collapse in a run, by step.
func collapseOf(r *record.StudyRun, metric string, l Limits) []Collapse {
	var found []Collapse
	if c, ok := metricFell(r, metric, l.Share); ok {
		found = append(found, c)
	}
	if c, ok := gradientGrew(r.Steps, l.GradNorm); ok {
		found = append(found, c)
	}
	if c, ok := stays(r.Steps, SignTokens, func(s record.StudyStep) *float64 { return s.Tokens },
		func(v float64) bool { return l.Tokens > 0 && v <= l.Tokens }, fmt.Sprintf("responses of at most %g tokens", l.Tokens)); ok {
		found = append(found, c)
	}
	if c, ok := stays(r.Steps, SignNoAnswer, func(s record.StudyStep) *float64 { return s.NoAnswer },
		func(v float64) bool { return l.NoAnswer > 0 && v > l.NoAnswer }, fmt.Sprintf("more than %.0f %% of the responses without a program", 100*l.NoAnswer)); ok {
		found = append(found, c)
	}
	if r.Kind == string(fault.Numeric) {
		step := 0
		if n := len(r.Steps); n > 0 {
			step = r.Steps[n-1].Step
		}
		found = append(found, Collapse{Step: step + 1, Sign: SignNumeric, Text: "a loss or gradient was not finite"})
	}
	return found
}

// metricFell finds the validation from which on the metric is below a share of the best that came before it.
func metricFell(r *record.StudyRun, metric string, share float64) (Collapse, bool) {
	best, fell := 0.0, -1
	for i, p := range r.Points {
		v := value(p, metric)
		switch {
		case v >= share*best || share == 0:
			fell = -1
		case fell < 0:
			fell = i
		}
		best = max(best, v)
	}
	if fell < 0 {
		return Collapse{}, false
	}
	last := value(r.Points[len(r.Points)-1], metric)
	return Collapse{
		Step: r.Points[fell].Step, Sign: SignMetric,
		Text: fmt.Sprintf("%s fell below %.0f %% of its best, %.1f %%, and ended at %.1f %%", metric, 100*share, 100*best, 100*last),
	}, true
}

// gradientGrew finds three steps running whose gradient is far above the median of the first quarter of the steps.
func gradientGrew(steps []record.StudyStep, factor float64) (Collapse, bool) {
	const running = 3
	var early []float64
	for _, s := range steps[:len(steps)/4] {
		if s.GradNorm != nil {
			early = append(early, *s.GradNorm)
		}
	}
	if factor == 0 || len(early) < running {
		return Collapse{}, false
	}
	usual, n := median(early), 0
	for _, s := range steps[len(steps)/4:] {
		if s.GradNorm == nil || *s.GradNorm <= factor*usual || usual == 0 {
			n = 0
			continue
		}
		if n++; n == running {
			return Collapse{
				Step: s.Step - running + 1, Sign: SignGradient,
				Text: fmt.Sprintf("the gradient norm was more than %g times that of the first steps, %.2g", factor, usual),
			}, true
		}
	}
	return Collapse{}, false
}

// stays finds the step from which on all numbers that are known are bad. A run that begins bad has not become so.
func stays(steps []record.StudyStep, sign string, of func(record.StudyStep) *float64, bad func(float64) bool, text string) (Collapse, bool) {
	since, good := -1, false
	for i, s := range steps {
		v := of(s)
		switch {
		case v == nil:
		case !bad(*v):
			since, good = -1, true
		case since < 0:
			since = i
		}
	}
	if since < 0 || !good {
		return Collapse{}, false
	}
	return Collapse{Step: steps[since].Step, Sign: sign, Text: text + ", from there to the end"}, true
}

func value(p record.StudyPoint, metric string) float64 {
	if metric == "pass_rate" {
		return p.PassRate
	}
	return p.Acc
}
