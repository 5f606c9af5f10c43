package demo

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/steadyrl/steady/internal/rng"
)

// Turn is one message after the prompt. An assistant's content is verbatim what the model samples, a tool call included;
// a tool's content is the observation.
type Turn struct {
	Role    string // assistant or tool
	Content string
}

// Example is one supervised conversation: the user's message and what follows it.
type Example struct {
	Statement string
	Turns     []Turn
	// Right is true if the shown program is the right one and its block is closed.
	Right bool
}

// Corpus returns an endless sequence of supervised examples, the same for the same arguments. None of their problems is
// a bundled one of the same seed.
func Corpus(seed uint64, n Noise) iter.Seq[Example] {
	return func(yield func(Example) bool) {
		bundled := map[task]bool{}
		for _, p := range problems(seed) {
			bundled[p.task] = true
		}
		for i := uint64(0); ; i++ {
			s := &source{stream: rng.New(seed, rng.Corpus, "example", i)}
			k := draw(s)
			for bundled[k] {
				k = draw(s)
			}
			if !yield(n.example(k, s)) {
				return
			}
		}
	}
}

// example composes a conversation about k.
func (n Noise) example(k task, s *source) Example {
	statement := k.statement(s.intn(32))
	if s.chance(sampled) {
		statement += examples(k, s)
	}
	shown := n.imitate(k, s)
	e := Example{Statement: statement, Right: shown == k}
	if s.chance(n.Tool) {
		in := k.input(s)
		observation, ok := shown.answer(in)
		if !ok {
			// The filter of the shown program leaves nothing; take an input on which it does not.
			in = shown.input(s)
			observation, _ = shown.answer(in)
		}
		e.Turns = append(e.Turns, Turn{"assistant", toolCall(shown.code(), in)}, Turn{"tool", observation + "\n"})
	}
	answer := "```python\n" + shown.code()
	if s.chance(n.Unclosed) {
		e.Right = false
	} else {
		answer += "```"
	}
	e.Turns = append(e.Turns, Turn{"assistant", answer})
	return e
}

// toolCall is a call of run_python in the form that the chat template shows to the model.
func toolCall(code, stdin string) string {
	var b strings.Builder
	b.WriteString("<tool_call>\n{\"name\": \"run_python\", \"arguments\": {\"code\": " + quote(code))
	b.WriteString(", \"stdin\": " + quote(stdin) + "}}\n</tool_call>")
	return b.String()
}

// quote is a JSON string with no more escapes than needed.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always has an encoding
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Expected estimates the accuracy of a model that imitates the corpus perfectly on bundled problems: sampled at
// temperature 1, and with the most frequent answer. Both are averages over the bundled problems and draws
// imitations of each, decided by the expected outputs of the hidden tests.
func Expected(seed uint64, n Noise, draws int) (atTemperature1, mostFrequent float64) {
	all := problems(seed)
	hits, modes := 0, 0
	for i, p := range all {
		s := &source{stream: rng.New(seed, rng.Corpus, "expected", i)}
		for range draws {
			if n.imitate(p.task, s).passes(p.tests) && !s.chance(n.Unclosed) {
				hits++
			}
		}
		if n.mode(p.task).passes(p.tests) {
			modes++
		}
	}
	return float64(hits) / float64(len(all)*draws), float64(modes) / float64(len(all))
}

// TokenizerCorpus returns texts on which a small tokenizer for the demo can be trained: statements, answers and
// observations of the corpus, without noise and with tool calls. The caller adds the fixed parts of the prompt.
func TokenizerCorpus(seed uint64) iter.Seq[string] {
	return func(yield func(string) bool) {
		i := 0
		for e := range Corpus(seed, Noise{Tool: 0.1}) {
			if i == 2000 || !yield(e.Statement) {
				return
			}
			for _, t := range e.Turns {
				if !yield(t.Content) {
					return
				}
			}
			i++
		}
	}
}
