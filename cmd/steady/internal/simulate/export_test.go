package simulate

// RunWith is Run with a look at every execution that ends.
var RunWith = run

// Draw is a length of the distribution.
func (l Lengths) Draw(seed uint64, problem string, sample int) int {
	return l.draw(seed, problem, sample)
}

// At is the rate of each of n responses.
func (r Rate) At(n int) float64 { return r.at(n) }
