package judge

import (
	"bytes"
	"math/big"
)

// maxExponent bounds what is computed: a larger power of ten is compared as text only.
const maxExponent = 400

// maxDecimal bounds the length of a token that is compared as a number.
const maxDecimal = 4096

var tolerance = big.NewRat(1, 1_000_000)

// Compare reports whether a program's output is right.
//
// Blanks at line ends (CR included) and blank lines at the end are ignored; the numbers of lines must be equal, and each
// line must have the same tokens, separated by ASCII white space. Case counts. A token that differs is right only if
// the expected one is a decimal with a fraction or an exponent, the printed one is a decimal, and the two
// differ by at most 1e-6, absolutely or relatively to the expected one, in exact arithmetic. So integers are
// exact at any length, and there is no nan, inf, underscore or foreign digit.
func Compare(expected, got []byte) bool {
	expected, got = trimEnd(expected), trimEnd(got)
	for {
		var e, g []byte
		var more, gotMore bool
		e, expected, more = bytes.Cut(expected, []byte("\n"))
		g, got, gotMore = bytes.Cut(got, []byte("\n"))
		if more != gotMore || !compareLine(e, g) {
			return false
		}
		if !more {
			return true
		}
	}
}

func trimEnd(b []byte) []byte { return bytes.TrimRight(b, " \t\r\n\v\f") }

func compareLine(expected, got []byte) bool {
	for {
		var e, g []byte
		e, expected = token(expected)
		g, got = token(got)
		if len(e) == 0 || len(g) == 0 {
			return len(e) == len(g)
		}
		if !bytes.Equal(e, g) && !closeTo(e, g) {
			return false
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// token returns the first token of line and what follows it.
func token(line []byte) (tok, rest []byte) {
	i := 0
	for i < len(line) && isSpace(line[i]) {
		i++
	}
	j := i
	for j < len(line) && !isSpace(line[j]) {
		j++
	}
	return line[i:j], line[j:]
}

func closeTo(expected, got []byte) bool {
	e, fractional, ok := decimal(expected)
	if !ok || !fractional {
		return false
	}
	g, _, ok := decimal(got)
	if !ok {
		return false
	}
	diff := new(big.Rat).Sub(e, g)
	diff.Abs(diff)
	if diff.Cmp(tolerance) <= 0 {
		return true
	}
	return diff.Cmp(e.Abs(e).Mul(e, tolerance)) <= 0
}

// decimal parses [+-]?(digits[.digits]|.digits)([eE][+-]?digits)?, also with nothing after the point.
// fractional is true if there is a point or an exponent.
func decimal(tok []byte) (value *big.Rat, fractional, ok bool) {
	if len(tok) > maxDecimal {
		return nil, false, false
	}
	i := 0
	if i < len(tok) && (tok[i] == '+' || tok[i] == '-') {
		i++
	}
	whole := digits(tok[i:])
	i += whole
	part := 0
	if i < len(tok) && tok[i] == '.' {
		fractional = true
		part = digits(tok[i+1:])
		i += 1 + part
	}
	if whole+part == 0 {
		return nil, false, false
	}
	if i < len(tok) && (tok[i] == 'e' || tok[i] == 'E') {
		fractional = true
		exponent, n := smallInt(tok[i+1:])
		if n == 0 || exponent > maxExponent || exponent < -maxExponent {
			return nil, false, false
		}
		i += 1 + n
	}
	if i != len(tok) {
		return nil, false, false
	}
	value, ok = new(big.Rat).SetString(string(tok))
	return value, fractional, ok
}

// digits counts the leading ASCII digits.
func digits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}

// smallInt reads [+-]?digits and returns its value, with a ceiling, and its length; 0 if there is none.
func smallInt(b []byte) (value, length int) {
	sign := 1
	i := 0
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		if b[i] == '-' {
			sign = -1
		}
		i++
	}
	n := digits(b[i:])
	if n == 0 {
		return 0, 0
	}
	for _, c := range b[i : i+n] {
		value = min(value*10+int(c-'0'), 1_000_000)
	}
	return sign * value, i + n
}
