package tokenizer_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
)

var update = flag.Bool("update", false, "rewrite testdata/trained/tokenizer.json")

// controls are Qwen's control tokens, in its order.
var controls = []tokenizer.Added{
	{Text: "<|endoftext|>", Special: true},
	{Text: "<|im_start|>", Special: true},
	{Text: "<|im_end|>", Special: true},
	{Text: "<tool_call>"},
	{Text: "</tool_call>"},
	{Text: "<tool_response>"},
	{Text: "</tool_response>"},
	{Text: "<think>"},
	{Text: "</think>"},
}

func trained(t *testing.T) []byte {
	t.Helper()
	corpus := []string{
		"n = int(input())\nprint(sum(map(int, input().split())))\n", "for i in range(n):\n    a, b = map(int, input().split())\n    print(a + b)\n",
		"def solve(a):\n\treturn max(a) - min(a)\n\n\nprint(solve(list(map(int, input().split()))))\r\n",
		"Read n numbers and print their sum. It's the first line that says how many; they've 12 digits.",
		"Lies n Zahlen und drücke ihre größte. Прочитай n чисел. 数を読みなさい。",
		"print('the sum is', sum(a))  # it prints the sum\nprint('the largest is', max(a))\n",
	}
	data, err := tokenizer.Train(slices.Values(corpus), 340, controls)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The file is what training gave when the Hugging Face library read it and encoded trained.jsonl (trained/golden.py).
func TestTrain_bytesAreStable(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "trained", tokenizer.FileName)
	got := trained(t)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestTrain_idsAreThoseOfTheHuggingFaceLibrary(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load(filepath.Join("testdata", "trained"))
	if err != nil {
		t.Fatal(err)
	}
	rows(t, filepath.Join("trained", "golden.jsonl"), func(v struct {
		Text    string
		IDs     []int32 `json:"ids"`
		Decoded string
		Visible string
	},
	) {
		if d := cmp.Diff(v.IDs, tok.Encode(v.Text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("Encode(%q) (-want +got):\n%s", v.Text, d)
		}
		if got := tok.Decode(v.IDs, false); got != v.Decoded {
			t.Errorf("Decode of %q = %q, want %q", v.Text, got, v.Decoded)
		}
		if got := tok.Decode(v.IDs, true); got != v.Visible {
			t.Errorf("Decode of %q without special tokens = %q, want %q", v.Text, got, v.Visible)
		}
	})
}

func TestTrain_sizes(t *testing.T) {
	t.Parallel()
	if _, err := tokenizer.Train(slices.Values([]string{"a"}), 256+len(controls)-1, controls); !fault.Is(err, fault.Invalid) {
		t.Errorf("no room for the control tokens: %v, want Invalid", err)
	}
	for _, tt := range []struct {
		name   string
		corpus []string
		size   int
		want   int
	}{
		{"bytes and control tokens only", []string{"aa aa aa"}, 256 + len(controls), 256 + len(controls)},
		{"nothing to merge", nil, 500, 256 + len(controls)},
		{"pairs that occur once are not learnt", []string{"abcdef"}, 500, 256 + len(controls)},
		{"one merge", []string{"ab ab"}, 257 + len(controls), 257 + len(controls)},
	} {
		data, err := tokenizer.Train(slices.Values(tt.corpus), tt.size, controls)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if tok.Size() != tt.want {
			t.Errorf("%s: %d tokens, want %d", tt.name, tok.Size(), tt.want)
		}
	}
}
