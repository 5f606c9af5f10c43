package demo

import "testing"

func TestExpected(t *testing.T) {
	t.Parallel()
	a, b := Expected(1, DefaultNoise(), 50)
	t.Logf("sampled %.3f, most frequent %.3f", a, b)
	for e := range Corpus(1, DefaultNoise()) {
		t.Log(e)
		break
	}
	for _, p := range problems(1)[:20] {
		t.Log(p.statement, "|", p.task.code(), p.tests)
	}
}
