package rng

import (
	"slices"
	"testing"
)

// Known answers published with the Random123 library for philox4x32-10.
func TestPhilox_knownAnswers(t *testing.T) {
	t.Parallel()
	const f = 0xffffffff
	tests := []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	}
	for _, tt := range tests {
		if got := philox(tt.ctr, tt.key); got != tt.want {
			t.Errorf("philox(%x, %x) = %x, want %x", tt.ctr, tt.key, got, tt.want)
		}
	}
}

func TestNew_labelsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	streams := []Stream{
		New(42, Train, "ab", "c"), New(42, Train, "a", "bc"), New(42, Train, "abc"),
		New(42, Validation, "ab", "c"), New(43, Train, "ab", "c"),
	}
	for i, a := range streams {
		for j, b := range streams {
			if i != j && a == b {
				t.Errorf("streams %d and %d are equal", i, j)
			}
		}
	}
	first, again := New(42, Train, 1, "p"), New(42, Train, 1, "p")
	if first != again {
		t.Error("the same labels must give the same stream")
	}
}

func TestPerm_isAPermutationAndUniformIsInRange(t *testing.T) {
	t.Parallel()
	s := New(7, Data, 0)
	p := s.Perm(1000)
	q := slices.Clone(p)
	slices.Sort(q)
	for i, v := range q {
		if i != v {
			t.Fatalf("sorted permutation has %d at %d", v, i)
		}
	}
	if slices.Equal(p, q) {
		t.Error("a permutation of 1000 must not be the identity")
	}
	var sum float64
	const n = 20000
	for i := range uint64(n) {
		u := s.Uniform(i)
		if u < 0 || u >= 1 {
			t.Fatalf("Uniform(%d) = %v", i, u)
		}
		sum += u
	}
	if mean := sum / n; mean < 0.49 || mean > 0.51 { // 5 standard deviations are 0.0102
		t.Errorf("mean of %d uniforms = %v", n, mean)
	}
}
