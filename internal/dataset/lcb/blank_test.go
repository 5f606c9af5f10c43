package lcb

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// A run of blanks reaches the decoder as one, in pieces of any size; texts keep theirs, and the value is the same.
func TestOneBlank_keepsTheValue(t *testing.T) {
	t.Parallel()
	bomb := "[" + strings.Repeat(" \n\t\r", 2<<20) + "]"
	if got, err := io.ReadAll(&oneBlank{r: strings.NewReader(bomb)}); err != nil || string(got) != "[ ]" {
		t.Errorf("%d bytes become %.20q, %v; want one blank", len(bomb), got, err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.SliceOfN(rapid.MapOf(rapid.String(), rapid.StringMatching(`[ \n\t"\\a]{0,9}`)), 0, 4).Draw(rt, "value")
		text, err := json.MarshalIndent(value, strings.Repeat(" ", rapid.IntRange(0, 9).Draw(rt, "prefix")), "\t \n")
		if err != nil {
			rt.Fatal(err)
		}
		var r io.Reader = strings.NewReader(string(text))
		if rapid.Bool().Draw(rt, "bytewise") {
			r = iotest.OneByteReader(r)
		}
		got, err := io.ReadAll(&oneBlank{r: r})
		if err != nil {
			rt.Fatal(err)
		}
		var back []map[string]string
		if err := json.Unmarshal(got, &back); err != nil {
			rt.Fatalf("%q: %v", got, err)
		}
		again, _ := json.Marshal(back)
		if want, _ := json.Marshal(value); string(again) != string(want) {
			rt.Fatalf("%q became %q", want, again)
		}
	})
}
