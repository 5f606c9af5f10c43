package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// number writes v with about four significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e9 || a < 1e-3:
		return strconv.FormatFloat(v, 'e', 2, 64)
	case v == math.Trunc(v) && a < 1e9:
		return group(strconv.FormatInt(int64(v), 10))
	case a >= 1000:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}

// group puts commas between thousands of a decimal integer.
func group(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func integer(n int) string { return group(strconv.Itoa(n)) }

// percent writes a share as in the table of validations.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + " %" }

// unbroken keeps a number and its unit on one line.
func unbroken(s string) string { return strings.ReplaceAll(s, " ", "\u00a0") }

// points writes the difference of two shares.
func points(from, to float64) string { return fmt.Sprintf("%+.2f points", 100*(to-from)) }

// plural writes a count with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return integer(n) + " " + many
}

// bytesOf writes a size.
func bytesOf(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// short is the start of a digest.
func short(digest string) string { return digest[:min(len(digest), 12)] }

// clock writes an RFC 3339 time for people, in UTC; what is no such time stays as it is.
func clock(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// since writes the time from a to b, "" if either is not a time.
func since(a, b string) string {
	from, err := time.Parse(time.RFC3339Nano, a)
	if err != nil {
		return ""
	}
	to, err := time.Parse(time.RFC3339Nano, b)
	if err != nil {
		return ""
	}
	d := to.Sub(from).Round(time.Second)
	if d < 0 {
		return "-" + (-d).String()
	}
	return "+" + d.String()
}

// compareTimes orders RFC 3339 times whatever their zone and number of fractions; other strings by their bytes.
func compareTimes(a, b string) int {
	ta, ea := time.Parse(time.RFC3339Nano, a)
	tb, eb := time.Parse(time.RFC3339Nano, b)
	if ea == nil && eb == nil {
		return ta.Compare(tb)
	}
	return strings.Compare(a, b)
}

// middle cuts the middle out of a long text.
func middle(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	half := limit / 2
	return fmt.Sprintf("%s\n[... %s characters left out ...]\n%s", string(r[:half]), integer(len(r)-2*half), string(r[len(r)-half:]))
}
