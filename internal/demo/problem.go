package demo

import (
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/rng"
)

const (
	// good is the number of ordinary problems, all of which the pipeline keeps.
	good = 256
	// sampled is the share of statements with a public example.
	sampled = 0.2
	// testsEach is small because a start of the sandbox costs more than such a program.
	testsEach = 2
)

// problem is a bundled problem.
type problem struct {
	task      task
	statement string
	tests     []judge.Test // outputs without a final newline
}

// problems returns the bundled problems, with pairwise different tasks.
func problems(seed uint64) []problem {
	s := &source{stream: rng.New(seed, rng.Corpus, "problems")}
	seen := map[task]bool{}
	out := make([]problem, 0, good)
	for len(out) < good {
		k := draw(s)
		if seen[k] {
			continue
		}
		seen[k] = true
		p := problem{task: k, statement: k.statement(s.intn(32)), tests: k.tests(s)}
		if s.chance(sampled) {
			p.statement += examples(k, s)
		}
		out = append(out, p)
	}
	return out
}

// tests draws tests on which as many as possible of the near misses of k fail.
func (k task) tests(s *source) []judge.Test {
	var best []judge.Test
	fewest := -1
	for range 40 {
		tests := make([]judge.Test, testsEach)
		for i := range tests {
			in := k.input(s)
			out, _ := k.answer(in)
			tests[i] = judge.Test{Input: in, Output: out}
		}
		missed := 0
		for _, near := range k.nearMisses() {
			if near.passes(tests) {
				missed++
			}
		}
		if fewest < 0 || missed < fewest {
			best, fewest = tests, missed
		}
		if missed == 0 {
			break
		}
	}
	return best
}

func (k task) passes(tests []judge.Test) bool {
	for _, t := range tests {
		if out, ok := k.answer(t.Input); !ok || out != t.Output {
			return false
		}
	}
	return true
}

// nearMisses are the tasks that differ from k in one slot.
func (k task) nearMisses() []task {
	var out []task
	for op := range ops[k.kind] {
		if near := k; op != k.op {
			near.op = op
			out = append(out, near)
		}
	}
	if k.kind != text {
		for f := all; f < filters; f++ {
			if near := k; f != k.filter {
				near.filter, near.t = f, 0
				if f == above {
					near.t = 4
				}
				out = append(out, near)
			}
		}
		for st := none; st < follow; st++ {
			if near := k; st != k.step {
				near.step, near.k = st, max(k.k, 2)
				if st == none {
					near.k = 0
				}
				out = append(out, near)
			}
		}
	}
	return out
}

// examples is the public example of a statement, in the wording of the schema's sources.
func examples(k task, s *source) string {
	in := k.input(s)
	out, _ := k.answer(in)
	return "\n\n-----Examples-----\nInput\n" + in + "\n\nOutput\n" + out + "\n"
}
