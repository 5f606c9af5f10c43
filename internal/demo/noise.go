package demo

// Noise says how wrong the corpus is. The zero value is a corpus without a fault and without a tool call.
type Noise struct {
	// Confusion is the probability that a slot value of the confused ones is replaced by its fixed partner.
	Confusion float64
	// Slip is the probability, for every other slot value, of a random replacement.
	Slip float64
	// Tool is the share of answers that call run_python before they conclude.
	Tool float64
	// Unclosed is the share of answers whose last code block is never closed.
	Unclosed float64
}

// DefaultNoise makes a model that imitates the corpus right in about 40 % of its answers; TestExpected has the figures.
func DefaultNoise() Noise {
	return Noise{Confusion: 0.6, Slip: 0.06, Tool: 0.1, Unclosed: 0.02}
}

// confusedFilter and confusedStep are the partners of the confused slot values.
var (
	confusedFilter = [filters]filter{all: all, even: even, odd: even, above: all}
	confusedStep   = [steps]step{none: none, times: times, plus: plus, minus: plus, follow: follow}
)

// imitate returns the task whose solution the corpus shows for k: k itself, or one that differs in one or more slots.
func (n Noise) imitate(k task, s *source) task {
	out := k
	out.op = n.slot(k.op, ops[k.kind][k.op].confused, len(ops[k.kind]), s)
	if k.kind == text {
		// A word has no filter, and only its last letters are confused.
		if k.step != none && s.chance(n.Slip) {
			out.number(s)
		}
		return out
	}
	out.filter = filter(n.slot(int(k.filter), int(confusedFilter[k.filter]), int(filters), s))
	out.step = step(n.slot(int(k.step), int(confusedStep[k.step]), int(follow), s))
	fresh := out
	fresh.number(s)
	if out.filter != above {
		out.t = 0
	} else if k.filter != above || s.chance(n.Slip) {
		out.t = fresh.t
	}
	switch {
	case out.step == none:
		out.k = 0
	case k.step == none || s.chance(n.Slip):
		out.k = fresh.k
	}
	return out
}

// slot returns the value that the corpus shows for value.
func (n Noise) slot(value, partner, values int, s *source) int {
	if partner != value {
		if s.chance(n.Confusion) {
			return partner
		}
		return value
	}
	if s.chance(n.Slip) {
		return s.intn(values)
	}
	return value
}

// mode is the most frequent imitation of k: every confused slot has its partner where Confusion is above one half.
func (n Noise) mode(k task) task {
	if n.Confusion <= 0.5 {
		return k
	}
	k.op = ops[k.kind][k.op].confused
	if k.kind != text {
		k.filter, k.step = confusedFilter[k.filter], confusedStep[k.step]
		if k.filter != above {
			k.t = 0
		}
	}
	return k
}
