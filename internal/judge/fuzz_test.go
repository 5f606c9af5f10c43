package judge_test

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/judge"
)

var (
	lineEnds     = regexp.MustCompile(`[ \t\r\v\f]*(\n|$)`)
	blankAtEnd   = regexp.MustCompile(`\n*$`)
	blanks       = regexp.MustCompile(`[ \t\r\v\f]+`)
	wholeToken   = regexp.MustCompile(`^[+-]?[0-9]+$`)
	decimalToken = regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?$`)
)

// sameOutput is the rule of comparison once more, written from docs/judge.md with regular expressions and integers.
func sameOutput(expected, got string) bool {
	e, g := outputLines(expected), outputLines(got)
	if len(e) != len(g) {
		return false
	}
	for i := range e {
		if len(e[i]) != len(g[i]) {
			return false
		}
		for k := range e[i] {
			if e[i][k] != g[i][k] && !closeNumbers(e[i][k], g[i][k]) {
				return false
			}
		}
	}
	return true
}

// outputLines returns the tokens of each line.
func outputLines(s string) [][]string {
	s = blankAtEnd.ReplaceAllString(lineEnds.ReplaceAllString(s, "$1"), "")
	var list [][]string
	for _, line := range strings.Split(s, "\n") {
		var tokens []string
		for _, token := range blanks.Split(line, -1) {
			if token != "" {
				tokens = append(tokens, token)
			}
		}
		list = append(list, tokens)
	}
	return list
}

func closeNumbers(expected, got string) bool {
	if wholeToken.MatchString(expected) {
		return false
	}
	e, eExp, ok := scaled(expected)
	g, gExp, ok2 := scaled(got)
	if !ok || !ok2 {
		return false
	}
	// Both as multiples of the smaller power of ten, and a millionth of it.
	low := min(eExp, gExp, 0)
	unit := func(n *big.Int, exp int) *big.Int { return n.Mul(n, power(exp-low)) }
	e, g = unit(e, eExp), unit(g, gExp)
	diff := new(big.Int).Sub(e, g)
	diff.Abs(diff).Mul(diff, big.NewInt(1_000_000))
	return diff.Cmp(power(-low)) <= 0 || diff.Cmp(e.Abs(e)) <= 0
}

func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// scaled returns a decimal as n * 10^exp.
func scaled(token string) (n *big.Int, exp int, ok bool) {
	m := decimalToken.FindStringSubmatch(token)
	if m == nil || m[2]+m[3] == "" || len(token) > 4096 {
		return nil, 0, false
	}
	if m[4] != "" {
		var err error
		if exp, err = strconv.Atoi(m[4]); err != nil || exp > 400 || exp < -400 {
			return nil, 0, false
		}
	}
	n, ok = new(big.Int).SetString(m[1]+m[2]+m[3], 10)
	return n, exp - len(m[3]), ok
}

func FuzzCompare(f *testing.F) {
	for _, tt := range comparisons {
		if len(tt.expected) > 1000 {
			continue // long inputs are slow to make smaller, and teach the fuzzer nothing
		}
		f.Add([]byte(tt.expected), []byte(tt.got))
	}
	for _, s := range [][2]string{
		{"1e400", "1e-400"},
		{" \r\n", ""},
		{"-.5e+3", "."},
		{"1e", "+"},
		{"1e401", "1e401 "},
		{"0e-400", "0.0e400"},
		{"1e18446744073709551617", "10.0"},
		{"1.0e-9223372036854775809", "0.0"},
		{"1\v2\f3", "1 2 3"},
		{"\n\r\n1", "\n \n1"},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		same := judge.Compare(a, b)
		if want := sameOutput(string(a), string(b)); same != want {
			t.Errorf("Compare(%q, %q) = %v, the rule says %v", a, b, same, want)
		}
		for _, s := range [][]byte{a, b} {
			if !judge.Compare(s, bytes.Clone(s)) {
				t.Errorf("%q differs from itself", s)
			}
		}
		if bytes.Equal(a, b) && !same {
			t.Errorf("equal bytes %q differ", a)
		}
		for _, blank := range []string{"\n", " ", "\t", "\r\n", " \n\n", "\v\f"} {
			if judge.Compare(append(bytes.Clone(a), blank...), b) != same || judge.Compare(a, append(bytes.Clone(b), blank...)) != same {
				t.Errorf("%q at the end of %q or %q decides", blank, a, b)
			}
		}
		crlf := bytes.ReplaceAll(b, []byte("\n"), []byte(" \r\n"))
		if judge.Compare(a, crlf) != same || judge.Compare(crlf, a) != judge.Compare(b, a) {
			t.Errorf("line ends of %q or %q decide", a, b)
		}
		// Where nothing is tolerant, the rule is symmetric.
		e, g := outputLines(string(a)), outputLines(string(b))
		if !same || len(e) != len(g) {
			if !tolerant(e) && !tolerant(g) && judge.Compare(b, a) != same {
				t.Errorf("Compare(%q, %q) = %v, but not in the other order", a, b, same)
			}
			return
		}
		for i := range e {
			for k, token := range e[i] {
				if wholeToken.MatchString(token) && g[i][k] != token {
					t.Errorf("%q is taken for the integer %q", g[i][k], token)
				}
			}
		}
	})
}

// Decimals near the bounds of the tolerance, in every notation, are judged as the rule says; random bytes hardly get there.
func TestCompare_decimalsNearTheTolerance(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
	number := func(n int64, point int, exponent string) string {
		digits := fmt.Sprintf("%0*d", point+1, n)
		return digits[:len(digits)-point] + "." + digits[len(digits)-point:] + exponent
	}
	right := 0
	for range 20_000 {
		n, point, exponent := r.Int64N(1<<(1+r.IntN(50))), r.IntN(12), ""
		if r.IntN(3) == 0 {
			exponent = "e" + strconv.Itoa(r.IntN(20)-10)
		}
		near := max(0, n+r.Int64N(3)-1+(r.Int64N(5)-2)*(n/2_000_000))
		expected, got := number(n, point, exponent), number(near, point, exponent)
		if r.IntN(2) == 0 {
			got = "+" + number(near*10, point+1, exponent)
		}
		same := judge.Compare([]byte(expected), []byte(got))
		if want := sameOutput(expected, got); same != want {
			t.Errorf("Compare(%q, %q) = %v, the rule says %v", expected, got, same, want)
		}
		if same && expected != got {
			right++
		}
	}
	if right < 1000 || right > 19_000 {
		t.Errorf("%d of 20000 pairs are different and right: the test tries one side of the rule only", right)
	}
}

// tolerant reports whether a token may be compared as a number.
func tolerant(lines [][]string) bool {
	for _, line := range lines {
		for _, token := range line {
			if !wholeToken.MatchString(token) && decimalToken.MatchString(token) {
				return true
			}
		}
	}
	return false
}

var (
	turnHeader  = regexp.MustCompile(`(?:^|\n)<\|im_start\|>assistant\r?(?:\n|$)`)
	turnEnd     = regexp.MustCompile(`<\|im_end\|>|<\|endoftext\|>`)
	opener      = regexp.MustCompile("^( {0,3})(?:(`{3,})[^`]*|(~{3,}).*)$")
	margins     = regexp.MustCompile(`(?m)^ +`)
	lineBreaks  = regexp.MustCompile(`[\r\n]+$`)
	afterThinks = regexp.MustCompile(`(?s)^.*</think>`)
)

// finalText is what counts of a response, written from docs/judge.md with regular expressions.
func finalText(response string) string {
	for {
		// Headers may share a line break, so each is looked for from the break that ends the one before.
		at := turnHeader.FindStringIndex(response)
		if at == nil {
			break
		}
		response = strings.TrimPrefix(response[at[0]:], "\n")[len("<|im_start|>assistant"):]
		response = strings.TrimPrefix(response, "\r")
	}
	if at := turnEnd.FindStringIndex(response); at != nil {
		response = response[:at[0]]
	}
	return afterThinks.ReplaceAllString(response, "")
}

// findCode is the rule of extraction once more: it looks for the closing line of each opening one.
func findCode(response string) (code string, ok bool) {
	lines := strings.SplitAfter(finalText(response), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.Contains(lines[i], "<think>") {
			return "", false
		}
		m := opener.FindStringSubmatch(lineBreaks.ReplaceAllString(lines[i], ""))
		if m == nil {
			continue
		}
		mark := m[2] + m[3]
		closer := regexp.MustCompile("^ {0,3}" + mark + mark[:1] + "*[ \t]*[\r\n]*$")
		j := i + 1
		for j < len(lines) && !closer.MatchString(lines[j]) {
			j++
		}
		if j == len(lines) { // left open: the rest belongs to it, and a mark of reasoning there is none of a program
			if strings.Contains(strings.Join(lines[i:], ""), "<think>") {
				return "", false
			}
			break
		}
		code, ok = "", true
		margin := regexp.MustCompile("^ {0," + strconv.Itoa(len(m[1])) + "}")
		for _, line := range lines[i+1 : j] {
			code += margin.ReplaceAllString(line, "")
		}
		i = j
	}
	return code, ok
}

func FuzzExtract(f *testing.F) {
	for _, tt := range extractions {
		f.Add(tt.segment)
	}
	for _, s := range []string{"````\n```\n````", " ```a`\n", "```\r\n```\r", "~~~\n```\n~~~~ \t\r\n", "<|im_start|>assistant\r\n```\n```", "<|im_start|>assistant\n<|im_start|>assistant"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		code, ok := judge.ExtractCode(s)
		if want, wantOK := findCode(s); code != want || ok != wantOK {
			t.Errorf("ExtractCode(%q) = %q, %v; the rule says %q, %v", s, code, ok, want, wantOK)
		}
		if !ok && code != "" {
			t.Errorf("code %q without ok from %q", code, s)
		}
		text := finalText(s)
		if !strings.Contains(margins.ReplaceAllString(text, ""), margins.ReplaceAllString(code, "")) || !strings.HasSuffix(s, text) && !turnEnd.MatchString(s) {
			t.Errorf("code %q is no part of the final text of %q", code, s)
		}
		if again, ok2 := judge.ExtractCode(s + "\n\n"); again != code || ok2 != ok {
			t.Errorf("blank lines after %q give %q, %v", s, again, ok2)
		}
		const mark = "```\nmark\n```"
		if got, ok := judge.ExtractCode(s + "<|im_end|>\n<|im_start|>assistant\n" + mark); !ok || got != "mark\n" {
			t.Errorf("a turn after %q gives %q, %v", s, got, ok)
		}
		if turnEnd.MatchString(s) {
			return
		}
		if got, ok := judge.ExtractCode(s + "</think>\n" + mark); !ok || got != "mark\n" {
			t.Errorf("an answer after the reasoning %q gives %q, %v", s, got, ok)
		}
		if got, ok := judge.ExtractCode(s + "\n<think>\n"); ok {
			t.Errorf("open reasoning after %q leaves %q", s, got)
		}
	})
}
