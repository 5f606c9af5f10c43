package weights

import "math"

// ToBF16 rounds to the nearest BF16, ties to even. Values above the largest finite BF16 become infinite; NaN stays NaN.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40 // quiet, and never infinite by truncation
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// FromBF16 is exact.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// RoundBF16 returns the float32 that equals the BF16 rounding of x.
func RoundBF16(x float32) float32 { return FromBF16(ToBF16(x)) }
