package artifact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

type document struct {
	Step   int                `json:"step"`
	Loss   *float64           `json:"loss"`
	Names  []string           `json:"names"`
	Nested map[string]nested  `json:"nested"`
	Rates  map[string]float64 `json:"rates,omitempty"`
}

type nested struct {
	Seal string `json:"seal"` // of something else
}

func sealedDocument(t *testing.T, s artifact.Store, name string) (plain, data []byte) {
	t.Helper()
	loss := -0.012345678901234567
	v := document{Step: 12, Loss: &loss, Names: []string{"<a>", "\"\n}\n", "ä"}, Nested: map[string]nested{"x": {Seal: "1"}}, Rates: map[string]float64{"a": 1e-7}}
	if _, err := artifact.PutJSON(t.Context(), s, name, v); err != nil {
		t.Fatal(err)
	}
	data, _, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	plain, err = json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(plain, '\n'), data
}

// What is said to people about computing a seal by hand is true.
func TestSeal_isTheDigestOfTheFileWithAnEmptyOne(t *testing.T) {
	t.Parallel()
	plain, data := sealedDocument(t, newFiles(t), "runs/r/l0/results/000012.json")
	empty := regexp.MustCompile(`(?m)^  "seal": "[0-9a-f]*"$`).ReplaceAll(data, []byte(`  "seal": ""`))
	seal, holds := artifact.SealOf(data)
	if seal != artifact.Digest(empty) || !holds {
		t.Errorf("seal %s, holds %v, the file with an empty one has %s", seal, holds, artifact.Digest(empty))
	}
	if without := strings.Replace(string(empty), ",\n  \"seal\": \"\"", "", 1); without != string(plain) {
		t.Errorf("without the seal the file is %s, want %s", without, plain)
	}
}

// Every byte of a document is covered: with any one changed, left out or doubled it is Corrupt, or says all that it said and has no seal.
func TestSeal_anyChangedByteIsNoticed(t *testing.T) {
	t.Parallel()
	plain, data := sealedDocument(t, newFiles(t), "d.json")
	var want any
	if err := json.Unmarshal(plain, &want); err != nil {
		t.Fatal(err)
	}
	noSeal := 0
	check := func(what string, changed []byte) {
		var got map[string]any
		seal, err := artifact.Decode("d.json", changed, &got)
		if err != nil {
			if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "d.json") {
				t.Errorf("%s: %v, want Corrupt with the name and a hint", what, err)
			}
			return
		}
		for k := range got { // the name of the seal, by one byte another
			if _, ok := want.(map[string]any)[k]; !ok {
				delete(got, k)
			}
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want); seal != "" || g != w {
			t.Errorf("%s is read as %s with the seal %q", what, g, seal)
		}
		noSeal++
	}
	for i := range data {
		for _, bit := range []byte{1, 2, 4, 8, 16, 32, 64, 128} {
			changed := bytes.Clone(data)
			changed[i] ^= bit
			check(fmt.Sprintf("byte %d with bit %d turned", i, bit), changed)
		}
		check(fmt.Sprintf("without byte %d", i), append(bytes.Clone(data[:i]), data[i+1:]...))
		check(fmt.Sprintf("with byte %d twice", i), append(bytes.Clone(data[:i+1]), data[i:]...))
	}
	if noSeal > 10*len(`"seal"`) {
		t.Errorf("%d changes took the seal away, want those of its name only", noSeal)
	}
}

func TestSeal_anotherFormIsNotTheSealedOne(t *testing.T) {
	t.Parallel()
	plain, data := sealedDocument(t, newFiles(t), "results/000012.json")
	compact := &bytes.Buffer{}
	if err := json.Compact(compact, data); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		data []byte
		ok   bool
	}{
		"as written":           {data, true},
		"without a seal":       {plain, true}, // of an older build
		"compact, no seal":     {[]byte(`{"step":12,"nested":{"x":{"seal":"1"}}}`), true},
		"on one line":          {compact.Bytes(), false},
		"sorted":               {append(sorted, '\n'), false},
		"a short seal":         {bytes.Replace(data, []byte("\"\n}\n"), nil, 1), false},
		"an empty seal":        {[]byte("{\n  \"step\": 12,\n  \"seal\": \"\"\n}\n"), false},
		"no text":              {nil, false},
		"a longer end":         {append(bytes.Clone(data), '\n'), false},
		"sealed again":         {artifact.Seal(data), true},
		"its own seal outside": {append(bytes.Clone(plain), data[len(data)-70:]...), false},
	} {
		_, err := artifact.Decode("results/000012.json", tt.data, nil)
		if tt.ok != (err == nil) || err != nil && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "step 12")) {
			t.Errorf("%s: %v, want an error of step 12: %v", what, err, !tt.ok)
		}
	}
	for _, doc := range []string{"{}\n", "[]\n", "[\n  1\n]\n", "7\n"} {
		if got := artifact.Seal([]byte(doc)); string(got) != doc {
			t.Errorf("%q was sealed as %q", doc, got)
		}
	}
}

// A document of an older build is found by a newer one that writes it again, as it is by an equal one.
func TestPutJSON_takesTheSameWithoutASeal(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	old := artifact.Digest([]byte("{\n  \"step\": 3\n}\n"))
	for name, text := range map[string]string{"same": "{\n  \"step\": 3\n}\n", "other": "{\n  \"step\": 4\n}\n"} {
		if _, err := s.Put(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		ref, err := artifact.PutJSON(t.Context(), s, name, map[string]int{"step": 3})
		if name == "same" && (err != nil || ref.Digest != old) || name == "other" && !fault.Is(err, fault.Stale) {
			t.Errorf("%s: %+v, %v", name, ref, err)
		}
	}
}
