// Package rng gives counter-based random numbers.
//
// A number is a pure function of a Stream and a position, so it does not depend on batch layout,
// thread, attempt or worker. The generator is Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011), which a GPU kernel can compute alike. The package
// imports nothing of this module.
package rng

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Domain separates the uses of one configured seed.
type Domain string

// The domains of a run.
const (
	Data       Domain = "data"       // order of the problems
	Train      Domain = "train"      // tokens of training trajectories
	Validation Domain = "validation" // tokens of validation trajectories; the step tag is always 0
	Init       Domain = "init"       // initial weights
	Corpus     Domain = "corpus"     // generated data and supervised batches
)

// Stream is the key of a random sequence. The zero Stream is valid but belongs to nobody.
type Stream struct {
	Key   [2]uint32
	Nonce [2]uint32
}

// New derives a stream from a seed, a domain and labels. Labels are hashed by their printed form
// with their length, so ("ab", "c") and ("a", "bc") differ.
func New(seed uint64, d Domain, labels ...any) Stream {
	h := sha256.New()
	fmt.Fprintf(h, "steady-rng-1 %d %d:%s", seed, len(d), string(d))
	for _, l := range labels {
		s := fmt.Sprint(l)
		fmt.Fprintf(h, " %d:%s", len(s), s)
	}
	sum := h.Sum(nil)
	return Stream{
		Key:   [2]uint32{binary.LittleEndian.Uint32(sum[0:]), binary.LittleEndian.Uint32(sum[4:])},
		Nonce: [2]uint32{binary.LittleEndian.Uint32(sum[8:]), binary.LittleEndian.Uint32(sum[12:])},
	}
}

// Block returns the four 32-bit numbers at position pos.
func (s Stream) Block(pos uint64) [4]uint32 {
	return philox([4]uint32{uint32(pos), uint32(pos >> 32), s.Nonce[0], s.Nonce[1]}, s.Key)
}

// Uint64 returns the number at position pos.
func (s Stream) Uint64(pos uint64) uint64 {
	b := s.Block(pos)
	return uint64(b[1])<<32 | uint64(b[0])
}

// Uniform returns the number at position pos as a float64 in [0, 1) with 53 random bits.
func (s Stream) Uniform(pos uint64) float64 {
	return float64(s.Uint64(pos)>>11) * (1.0 / (1 << 53))
}

// IntN returns the number at position pos reduced to [0, n). The bias is below n/2^64.
// It panics if n <= 0 (caller bug).
func (s Stream) IntN(pos uint64, n int) int {
	if n <= 0 {
		panic("rng.IntN: n <= 0")
	}
	hi, _ := bits.Mul64(s.Uint64(pos), uint64(n))
	return int(hi)
}

// Perm returns a permutation of 0..n-1 (Fisher-Yates from the end; positions 1..n-1 are used).
func (s Stream) Perm(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := s.IntN(uint64(i), i+1)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	for range 10 {
		hi0, lo0 := bits.Mul32(m0, ctr[0])
		hi1, lo1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += w0
		key[1] += w1
	}
	return ctr
}
