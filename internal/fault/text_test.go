package fault_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/fault"
)

var function = regexp.MustCompile(`[a-z]+\.[A-Z][A-Za-z]+`)

// However faults, sentences and joins are nested, a person reads every cause in its order and no name of a function.
func TestText_hasNoFunctionAtAnyDepth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		causes := 0
		var build func(depth int) error
		build = func(depth int) error {
			kind := rapid.IntRange(0, 5).Draw(rt, "layer")
			if depth == 0 {
				kind = 0
			}
			op := rapid.SampledFrom([]string{"artifact.Get", "record.Trail", "a.B", ""}).Draw(rt, "op")
			switch kind {
			case 1:
				return fault.New(fault.Invalid, op, "%w", build(depth-1))
			case 2:
				return fault.New(fault.Corrupt, op, "while it is read: %w", build(depth-1))
			case 3:
				return fmt.Errorf("line %d: %w", depth, build(depth-1))
			case 4:
				return errors.Join(build(depth-1), build(depth-1))
			case 5:
				return fmt.Errorf("%w (seen: %w)", build(depth-1), build(depth-1))
			}
			causes++
			text := fmt.Sprintf("cause%d;", causes)
			if op == "" {
				return errors.New(text)
			}
			return fault.New(fault.NotFound, op, "%s", text)
		}
		err := build(4)
		text := fault.Text(err)
		if function.MatchString(text) {
			rt.Errorf("%q names a function in %q", err, text)
		}
		last := -1
		for i := 1; i <= causes; i++ {
			at := strings.Index(text, fmt.Sprintf("cause%d;", i))
			if at <= last {
				rt.Errorf("%q: cause %d stands at %d in %q", err, i, at, text)
			}
			last = at
		}
		for _, word := range []string{"while it is read: ", "(seen: ", "line "} {
			if strings.Count(text, word) != strings.Count(err.Error(), word) {
				rt.Errorf("%q lost %q in %q", err, word, text)
			}
		}
	})
}

// What the decoders of the language say of a value is said in words of the file, wherever it is wrapped.
func TestText_saysWhatAValueIsAndWhatIsWanted(t *testing.T) {
	t.Parallel()
	type Embedded struct {
		E int `json:"e"`
	}
	type inner struct {
		Embedded

		N int     `json:"n"`
		U uint8   `json:"u"`
		F float64 `json:"f"`
		S string  `json:"s"`
		B bool    `json:"b"`
		L []int   `json:"l"`
		P *int    `json:"p"`
	}
	var v struct {
		In inner          `json:"in"`
		M  map[string]int `json:"m"`
	}
	for text, want := range map[string]string{
		`{"in": {"n": "x"}}`:    `"in.n" is a text, want a whole number (byte `,
		`{"in": {"n": 1.5}}`:    `"in.n" is 1.5, want a whole number (byte `,
		`{"in": {"n": 1e400}}`:  `"in.n" is 1e400, want a whole number (byte `,
		`{"in": {"u": 300}}`:    `"in.u" is 300, want a whole number that is not negative (byte `,
		`{"in": {"f": []}}`:     `"in.f" is a list, want a number (byte `,
		`{"in": {"s": 1}}`:      `"in.s" is a number, want a text (byte `,
		`{"in": {"b": "true"}}`: `"in.b" is a text, want true or false (byte `,
		`{"in": {"l": {}}}`:     `"in.l" is an object, want a list (byte `,
		`{"in": {"l": [true]}}`: `"in.l" is true or false, want a whole number (byte `,
		`{"in": {"p": "1"}}`:    `"in.p" is a text, want a whole number (byte `,
		`{"in": 3}`:             `"in" is a number, want an object (byte `,
		`{"m": []}`:             `"m" is a list, want an object (byte `,
		`[]`:                    `the value is a list, want an object (byte `,
	} {
		cause := json.Unmarshal([]byte(text), &v)
		for _, err := range []error{cause, fmt.Errorf("f: %w", cause), fault.New(fault.Invalid, "a.B", "f: %w", cause), errors.Join(cause, os.ErrClosed)} {
			got := fault.Text(err)
			if !strings.Contains(got, want) || strings.Contains(got, "Go") || strings.Contains(got, "json") || strings.Contains(got, "inner") || strings.Contains(got, "Embedded") {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
	}
	d := json.NewDecoder(strings.NewReader(`{"x": 1}`))
	d.DisallowUnknownFields()
	if got := fault.Text(fmt.Errorf("f: %w", d.Decode(&v))); got != `f: unknown field "x"` {
		t.Errorf("an unknown field: %q", got)
	}
	_, err := strconv.Atoi("12x")
	if got := fault.Text(fmt.Errorf("--n: %w", err)); got != `--n: "12x" is no number that can be used here` {
		t.Errorf("no number: %q", got)
	}
}

func TestText_keepsWhatHasNoOther(t *testing.T) {
	t.Parallel()
	_, missing := os.Open(filepath.Join(t.TempDir(), "none"))
	for _, err := range []error{missing, fmt.Errorf("the file: %w", missing), fs.ErrNotExist, errors.New(""), fmt.Errorf("%w", errors.New(""))} {
		if got := fault.Text(err); got != err.Error() {
			t.Errorf("%q became %q", err, got)
		}
	}
	if got := fault.Text(fault.New(fault.Internal, "a.B", "why: %w", fault.New(fault.Invalid, "c.D", "so"))); got != "a.B: why: so" {
		t.Errorf("of an unknown cause the function is part: %q", got)
	}
	if got := fault.Text(&fault.Error{Kind: fault.Invalid, Op: "nothing else"}); got != "nothing else" || fault.Text(nil) != "" {
		t.Errorf("without a cause: %q", got)
	}
}
