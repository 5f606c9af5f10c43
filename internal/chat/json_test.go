package chat_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/fault"
)

// The expectations are what Python 3.11 prints for json.dumps(json.loads(text), ensure_ascii=False).
func TestPythonJSON_printsAsPythonDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{`{"b":1,"a":[1,2,{}],"c":[]}`, `{"b": 1, "a": [1, 2, {}], "c": []}`},
		{`{"a":1,"b":2,"a":[3]}`, `{"a": [3], "b": 2}`},
		{`[1e3,1.0,1E400,-1e400,-0,-0.0,0.0001,0.00001]`, `[1000.0, 1.0, Infinity, -Infinity, 0, -0.0, 0.0001, 1e-05]`},
		{`[123456789012345678901234567890,1e15,1e16,1.5e300,5e-324,0.1]`, `[123456789012345678901234567890, 1000000000000000.0, 1e+16, 1.5e+300, 5e-324, 0.1]`},
		{`[100000000000000000000.0,2.50,12345678901234567.0]`, `[1e+20, 2.5, 1.2345678901234568e+16]`},
		{`["<&>\u2028é🙂\/\u001f\u007f\b\f\n\r\t\"\\"]`, "[\"<&>\u2028é🙂/\\u001f\u007f\\b\\f\\n\\r\\t\\\"\\\\\"]"},
		{` [ true , false , null ] `, `[true, false, null]`},
		{`"\ud83d\ude42"`, `"🙂"`},
	} {
		if got, err := chat.PythonJSON(json.RawMessage(tt[0])); err != nil || got != tt[1] {
			t.Errorf("PythonJSON(%s) = %s, %v; want %s", tt[0], got, err, tt[1])
		}
	}
	for _, bad := range []string{``, `{`, `[1,]`, `{"a"}`, `1 2`, `{'a': 1}`, `NaN`, strings.Repeat("[", 20000)} {
		if got, err := chat.PythonJSON(json.RawMessage(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("PythonJSON(%.20s) = %s, %v; want Invalid", bad, got, err)
		}
	}
}

// A long string deep inside objects is copied a few times, not once for each level: memory that is asked for grows with the text. Lists
// and objects around it, and an equal key at each level, make no difference.
func TestPythonJSON_workIsLinearInDepth(t *testing.T) { // not parallel: it counts what the process asks for
	long := `"` + strings.Repeat("x", 100_000) + `"`
	for _, level := range [][2]string{{`{"a":`, `}`}, {`[`, `]`}, {`{"a":0,"a":`, `}`}, {`[{"b":1,"a":`, `}]`}} {
		bytesFor := func(depth int) uint64 {
			raw := json.RawMessage(strings.Repeat(level[0], depth) + long + strings.Repeat(level[1], depth))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := chat.PythonJSON(raw); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if few, many := bytesFor(10), bytesFor(1000); many > 2*few+2000*1000 {
			t.Errorf("levels of %s: %d bytes for 10, %d for 1000", level[0], few, many)
		}
	}
}
