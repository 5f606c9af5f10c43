package demo

import "github.com/steadyrl/steady/internal/dataset"

// Quirk is a quirk's name and decision, for the tests.
type Quirk struct {
	Name string
	Want dataset.Reason
}

// Quirks lists the quirks in the order of their rows.
func Quirks() []Quirk {
	var out []Quirk
	for _, q := range quirks() {
		out = append(out, Quirk{q.name, q.want})
	}
	return out
}

// Statements lists the bundled statements.
func Statements(seed uint64) []string {
	var out []string
	for _, p := range problems(seed) {
		out = append(out, p.statement)
	}
	return out
}
