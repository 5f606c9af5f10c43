//go:build unix

package tokenizer_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/tokenizer"
)

// sources is the Go code of this repository, as one text: real code, of which little repeats.
func sources(tb testing.TB) string {
	tb.Helper()
	var b strings.Builder
	err := filepath.WalkDir(filepath.Join("..", ".."), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if filepath.Ext(name) == ".go" {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			b.Write(data)
		}
		return nil
	})
	if err != nil || b.Len() == 0 {
		tb.Fatalf("%d bytes of code, %v", b.Len(), err)
	}
	return b.String()
}

// perCore reports megabytes of text a second of processor time, which another load on the machine disturbs little. It
// sets b's bytes; call what it returns after the loop.
func perCore(b *testing.B, bytes int) func() {
	b.Helper()
	b.SetBytes(int64(bytes))
	used := func() float64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	began := used()
	return func() { b.ReportMetric(float64(bytes)*float64(b.N)/1e6/(used()-began), "MB/core-s") }
}

func benchQwen3(b *testing.B) *tokenizer.Tokenizer {
	b.Helper()
	tok, err := qwen3()
	if err != nil {
		b.Skip(err)
	}
	return tok
}

func BenchmarkEncode(b *testing.B) {
	tok := benchQwen3(b)
	loop := "def solve(n, m):\n    a = list(map(int, input().split()))\n    return max(a[i] + a[j] for i in range(n) for j in range(i))\n"
	for _, bb := range []struct{ name, text string }{
		{"repeated_code", strings.Repeat(loop, 200)},
		{"sources", sources(b)},
		{"numbers", strings.Repeat("1048576 -42 3.14159 1000000007\n", 2000)},
		{"chinese", strings.Repeat("给定一个长度为 n 的整数数组，求最大子段和。输入保证答案不超过 32 位整数。\n", 500)},
		{"decomposed", strings.Repeat("cafe\u0301 re\u0301sume\u0301 nai\u0308ve A\u030angstro\u0308m\n", 1000)},
		{"one_letter", strings.Repeat("a", 1<<16)},
		{"spaces", strings.Repeat(" ", 1<<16)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			report := perCore(b, len(bb.text))
			for b.Loop() {
				tok.EncodePlain(bb.text)
			}
			report()
		})
	}
}

// Every text is encoded by a tokenizer that has not seen a piece of it: the first minute of a worker.
func BenchmarkEncode_firstTime(b *testing.B) {
	text := sources(b)
	data, err := os.ReadFile(filepath.Join(qwen3Dir(), tokenizer.FileName))
	if err != nil {
		b.Skip(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		b.Fatal(err)
	}
	report := perCore(b, len(text))
	for b.Loop() {
		tok.Forget()
		tok.EncodePlain(text)
	}
	report()
}

func BenchmarkEncode_template(b *testing.B) {
	tok := benchQwen3(b)
	text := "<|im_start|>user\n" + sources(b)[:1<<18] + "<|im_end|>\n"
	report := perCore(b, len(text))
	for b.Loop() {
		tok.Encode(text)
	}
	report()
}

func BenchmarkEncode_parallel(b *testing.B) {
	tok := benchQwen3(b)
	text := sources(b)[:1<<18]
	report := perCore(b, len(text))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			tok.EncodePlain(text)
		}
	})
	report()
}

func BenchmarkDecode(b *testing.B) {
	tok := benchQwen3(b)
	text := sources(b)
	ids := tok.EncodePlain(text)
	report := perCore(b, len(text))
	for b.Loop() {
		tok.Decode(ids, false)
	}
	report()
}

func BenchmarkStream(b *testing.B) {
	tok := benchQwen3(b)
	text := sources(b)[:1<<18]
	ids := tok.EncodePlain(text)
	report := perCore(b, len(text))
	for b.Loop() {
		s := tok.Stream(false)
		for _, id := range ids {
			s.Next(id)
		}
	}
	report()
}

func BenchmarkLoad(b *testing.B) {
	benchQwen3(b)
	for b.Loop() {
		if _, err := tokenizer.Load(qwen3Dir()); err != nil {
			b.Fatal(err)
		}
	}
}
