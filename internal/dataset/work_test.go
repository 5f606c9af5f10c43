package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// mixed is a shard in which every third row is dropped and every seventh has tests of some size.
func mixed(n int) []Row {
	rows := family("mixed", n)
	for i := range rows {
		if i%3 == 1 {
			rows[i].Question = ptr("<image>")
		}
		if i%7 == 0 {
			rows[i].InputOutput = ptr(`{"inputs":["` + strings.Repeat("x<é ", i) + `"],"outputs":["` + strings.Repeat("y\\n", i) + `"]}`)
		}
	}
	return rows
}

func workIn(t *testing.T, dir string) *Work {
	t.Helper()
	w, err := OpenWork(dir)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// recipe keeps what fakeRun passes.
func recipe(parallel int) *Recipe {
	return &Recipe{
		Seed: 7, Train: 40, Dev: 10, MaxPrompt: 50, Tries: 3, Run: fakeRun, Parallel: parallel,
		CountPrompt: func(s string) (int, error) { return len(strings.Fields(s)), nil },
	}
}

// Work that stops after any number of judged programs goes on behind its last part, with any number of workers, and gives the
// bytes of work that did not stop.
func TestWork_goesOnBehindItsLastPart(t *testing.T) {
	t.Parallel()
	const rows = 3*partRows + 5
	data := shard(t, mixed(rows))
	in := Input{Name: "s.parquet", Size: int64(len(data))}
	whole := filepath.Join(t.TempDir(), "set")
	w := workIn(t, t.TempDir())
	if _, err := recipe(2).Shard(t.Context(), w, 0, in, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := recipe(2).Finish(t.Context(), w, whole, 1); err != nil {
		t.Fatal(err)
	}
	want := readDir(t, whole)
	for _, stop := range []int64{1, 10, 30, 50, 60} {
		base := t.TempDir()
		w := workIn(t, base)
		var judged atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		r := recipe(3)
		r.Run = func(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
			if judged.Add(1) == stop {
				cancel()
			}
			if err := ctx.Err(); err != nil {
				return judge.Verdict{}, err
			}
			return fakeRun(ctx, code, tests)
		}
		if _, err := r.Shard(ctx, w, 0, in, bytes.NewReader(data), nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped after %d programs: %v, want context.Canceled", stop, err)
		}
		if _, err := r.Finish(t.Context(), w, filepath.Join(base, "set"), 1); !fault.Is(err, fault.NotFound) {
			t.Errorf("Finish of half a shard: %v, want NotFound", err)
		}
		parts, err := filepath.Glob(filepath.Join(base, "shard-000", "rows-*"))
		if err != nil {
			t.Fatal(err)
		}
		judged.Store(-1000)
		for _, parallel := range []int{1, 5} { // the second finds the shard done
			r.Parallel = parallel
			if got, err := r.Shard(t.Context(), w, 0, in, bytes.NewReader(data), nil); err != nil || got.Rows != rows {
				t.Fatalf("%+v, %v; want %d rows", got, err, rows)
			}
		}
		left := int64(0) // rows behind the parts that are judged
		for i := len(parts) * partRows; i < rows; i++ {
			if i%3 != 1 {
				left++
			}
		}
		if got := judged.Load() + 1000; got != left {
			t.Errorf("stopped after %d programs, %d parts: %d programs were run, want %d", stop, len(parts), got, left)
		}
		if _, err := recipe(1).Finish(t.Context(), w, filepath.Join(base, "set"), 1); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, readDir(t, filepath.Join(base, "set"))); diff != "" {
			t.Errorf("stopped after %d programs: other bytes (-want +got):\n%s", stop, diff)
		}
	}
}

// A part that is not as it was written is written again while the shard is open, and an error afterwards.
func TestWork_findsDamagedParts(t *testing.T) {
	t.Parallel()
	data := shard(t, mixed(2*partRows))
	in := Input{Name: "s.parquet", Size: int64(len(data))}
	for name, damage := range map[string]func([]byte) []byte{
		"a bit in a test": func(d []byte) []byte { d[bytes.IndexByte(d, '<')] ^= 1; return d },
		"cut off":         func(d []byte) []byte { return d[:len(d)-1] },
		"a line less":     func(d []byte) []byte { return d[bytes.IndexByte(d, '\n')+1:] },
		"empty":           func([]byte) []byte { return nil },
		"longer":          func(d []byte) []byte { return append(d, '\n') },
	} {
		base := t.TempDir()
		w := workIn(t, base)
		first := filepath.Join(base, filepath.FromSlash(partName(0, 0)))
		prepare := func() {
			if _, err := recipe(2).Shard(t.Context(), w, 0, in, bytes.NewReader(data), nil); err != nil {
				t.Fatal(err)
			}
		}
		prepare()
		good, err := os.ReadFile(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(first, damage(bytes.Clone(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := recipe(2).Finish(t.Context(), w, filepath.Join(base, "set"), 1); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: Finish says %v, want Corrupt", name, err)
		}
		if err := os.Remove(filepath.Join(base, ShardFile(0))); err != nil {
			t.Fatal(err)
		}
		prepare()
		if got, err := os.ReadFile(first); err != nil || !bytes.Equal(got, good) {
			t.Errorf("%s: the part was not written again (%v)", name, err)
		}
	}
}

// A large row ends its part, so that a part is never much larger than one row.
func TestWork_partsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	rows := family("large", 6)
	for i := range rows {
		rows[i].InputOutput = ptr(`{"inputs":["` + strings.Repeat("1", partBytes/2) + `"],"outputs":["1"]}`)
	}
	data := shard(t, rows)
	base := t.TempDir()
	if _, err := recipe(2).Shard(t.Context(), workIn(t, base), 0, Input{Name: "s.parquet", Size: int64(len(data))}, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(base, "shard-000", "rows-*"))
	if err != nil || len(parts) != 3 {
		t.Errorf("parts %v, %v; want 3 of two rows", parts, err)
	}
}

func TestFinish_replacesNothing(t *testing.T) {
	t.Parallel()
	data := shard(t, mixed(20))
	w := workIn(t, t.TempDir())
	if _, err := recipe(1).Shard(t.Context(), w, 0, Input{Name: "s.parquet", Size: int64(len(data))}, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	made := func(name string, files map[string]string) string {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for f, text := range files {
			if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	empty := made("empty", nil)
	for i := range 2 { // the second finds what it would write
		if _, err := recipe(1).Finish(t.Context(), w, empty, 1); err != nil {
			t.Errorf("time %d: %v", i, err)
		}
	}
	other := recipe(1)
	other.Seed++
	if _, err := other.Finish(t.Context(), w, empty, 1); !fault.Is(err, fault.Invalid) {
		t.Errorf("another data set is there: %v, want Invalid", err)
	}
	if _, err := Check(t.Context(), empty); err != nil {
		t.Errorf("the data set that was there: %v", err)
	}
	foreign := made("foreign", map[string]string{"notes.txt": "mine"})
	file := filepath.Join(foreign, "notes.txt")
	for _, dir := range []string{foreign, file} {
		if _, err := recipe(1).Finish(t.Context(), w, dir, 1); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want Invalid with a hint", dir, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there holds %q, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(w.files.Root(), "out-*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Everything that can change a row changes the key, and nothing else does.
func TestRecipe_Key(t *testing.T) {
	t.Parallel()
	inputs := []Input{{Name: "a", SHA256: "1", Size: 1}, {Name: "b", SHA256: "2", Size: 2}}
	base, err := recipe(1).Key(inputs)
	if err != nil {
		t.Fatal(err)
	}
	same := []Input{{Name: "a", SHA256: "1", Size: 1, Rows: 9}, inputs[1]}
	if k, err := recipe(8).Key(same); k != base || err != nil {
		t.Errorf("other workers and known rows: %s, %v; want %s", k, err, base)
	}
	seen := map[string]string{base: "the recipe"}
	for name, change := range map[string]func(*Recipe){
		"seed": func(r *Recipe) { r.Seed++ }, "train": func(r *Recipe) { r.Train++ }, "dev": func(r *Recipe) { r.Dev++ },
		"max_prompt": func(r *Recipe) { r.MaxPrompt++ }, "tries": func(r *Recipe) { r.Tries++ }, "thinking": func(r *Recipe) { r.Thinking = true },
		"tokenizer": func(r *Recipe) { r.Tokenizer = "x" }, "python": func(r *Recipe) { r.Python = "3.9.1" }, "limits": func(r *Recipe) { r.Limits = "x" },
		"an empty list": func(r *Recipe) { r.Excluded = map[string]bool{} }, "a list": func(r *Recipe) { r.Excluded = map[string]bool{"id:a": true} },
	} {
		r := recipe(1)
		change(r)
		k, err := r.Key(inputs)
		if seen[k] != "" || err != nil {
			t.Errorf("%s: %v, the key of %s", name, err, seen[k])
		}
		seen[k] = name
	}
	for i, other := range [][]Input{inputs[:1], {inputs[1], inputs[0]}, {inputs[0], {Name: "b", SHA256: "3", Size: 2}}, {inputs[0], {Name: "c", SHA256: "2", Size: 2}}} {
		k, err := recipe(1).Key(other)
		if seen[k] != "" || err != nil {
			t.Errorf("shards %d: %v, the key of %s", i, err, seen[k])
		}
		seen[k] = fmt.Sprint("shards ", i)
	}
	if _, err := recipe(1).Key([]Input{inputs[0], inputs[0]}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "a") {
		t.Errorf("a shard twice: %v, want Invalid", err)
	}
}

// Cells are in the file once, not also as the bounds of pages and columns.
func TestFinish_storesCellsOnce(t *testing.T) {
	t.Parallel()
	s := rand.New(rand.NewPCG(1, 1))
	rows, size := family("once", 30), 0
	for i := range rows {
		random := make([]byte, 30_000)
		for k := range random {
			random[k] = byte('0' + s.IntN(64)) // six bits of eight; Snappy finds no repetition
			if random[k] == '\\' {
				random[k] = '/'
			}
		}
		size += len(random)
		rows[i].InputOutput = ptr(`{"inputs":["` + string(random) + `"],"outputs":["1"]}`)
	}
	files, _, _ := finish(t, FinishOptions{Train: 20, Dev: 10}, prepare(t, rows, options()))
	total := 0
	for _, data := range files {
		total += len(data)
	}
	if total < size/2 || total > size*12/10 {
		t.Errorf("files of %d bytes for tests of %d", total, size)
	}
}

// A row that takes long keeps no other program waiting: the rows behind it are judged meanwhile, and still come out in order.
func TestPrepareShard_aSlowRowHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	rows := family("slow", 30)
	rows[0].Solutions = ptr(`["slow"]`)
	var others sync.WaitGroup
	others.Add(15) // fewer than may wait behind the first
	var ended atomic.Int64
	o := options()
	o.Parallel = 2
	o.Run = func(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
		if code == "slow" {
			others.Wait()
		} else if ended.Add(1) <= 15 {
			others.Done()
		}
		return passAll(ctx, code, tests)
	}
	for i, c := range decode(t, prepare(t, rows, o)) {
		if c.Decision.Row != int64(i) || c.Decision.Reason != Kept {
			t.Errorf("place %d has %+v", i, c.Decision)
		}
	}
}

// The first fault ends the work, and no row behind it is written.
func TestPrepareShard_nothingIsEmittedBehindAFault(t *testing.T) {
	t.Parallel()
	for bad := range 40 {
		rows := family("fault", 40)
		rows[bad].Solutions = ptr(`["no such verdict"]`)
		data, emitted := shard(t, rows), 0
		_, err := checkRows(t.Context(), bytes.NewReader(data), int64(len(data)), 0, options(), func(c Checked) error {
			if emitted++; c.Decision.Reason != Kept {
				t.Errorf("row %d came out as %+v", emitted-1, c.Decision)
			}
			return nil
		})
		if !fault.Is(err, fault.Infrastructure) || emitted > bad {
			t.Errorf("fault in row %d: %d rows came out, %v", bad, emitted, err)
		}
	}
	stop := errors.New("stop")
	data := shard(t, family("stop", 40))
	if _, err := checkRows(t.Context(), bytes.NewReader(data), int64(len(data)), 0, options(), func(Checked) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the error of emit", err)
	}
}
