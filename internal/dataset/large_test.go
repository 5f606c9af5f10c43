package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// A shard of TACO has 2,827 rows and about 471 MB of cells, nearly all of it tests, in 180 MB.
const (
	tacoRows = 2827
	rowBytes = 471_000_000 / tacoRows
)

// generate writes a shard that has the sizes of one of TACO's: statements of some kilobytes, twenty programs a row, tests whose
// sizes have a long tail, row groups of 1,000 rows, Snappy, dictionaries. About one row in three is dropped.
func generate(t testing.TB, path string, rows int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[Row](f, append(writerOptions[Row](), parquet.DataPageVersion(1), parquet.MaxRowsPerRowGroup(1000))...)
	s := rand.New(rand.NewPCG(uint64(rows), 3))
	for i := range rows {
		if _, err := w.Write([]Row{largeRow(s, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The columns without which no row can be judged, as one dictionary or as plain text.
type (
	dictRow struct {
		Question    *string `parquet:"question,optional,dict"`
		Solutions   *string `parquet:"solutions,optional,dict"`
		StarterCode *string `parquet:"starter_code,optional,dict"`
		InputOutput *string `parquet:"input_output,optional,dict"`
	}
	pageRow struct {
		Question    *string `parquet:"question,optional,plain"`
		Solutions   *string `parquet:"solutions,optional,plain"`
		StarterCode *string `parquet:"starter_code,optional,plain"`
		InputOutput *string `parquet:"input_output,optional,plain"`
	}
)

// generateWhole writes a shard of the rows of generate of which each column of each row group is one dictionary or one page: what
// writers that look at sizes only every thousand rows make of texts as large as these.
func generateWhole[T dictRow | pageRow](t testing.TB, path string, rows, group int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	o := append(writerOptions[T](), parquet.MaxRowsPerRowGroup(int64(group)), parquet.PageBufferSize(1<<30), parquet.DataPageVersion(1), parquet.WriteBufferSize(1<<20))
	w := parquet.NewGenericWriter[T](f, o...)
	s := rand.New(rand.NewPCG(uint64(rows), 3))
	for i := range rows {
		r := largeRow(s, i)
		if _, err := w.Write([]T{T(dictRow{r.Question, r.Solutions, r.StarterCode, r.InputOutput})}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func largeRow(s *rand.Rand, i int) Row {
	var statement strings.Builder
	for statement.Len() < 1500 {
		fmt.Fprintf(&statement, "Sentence %d speaks of $%d$ numbers and a graph (u_%d, v_%d) with weights up to 10^{9}. ", s.IntN(1e6), s.IntN(1000), i, s.IntN(9))
	}
	switch i % 9 {
	case 1:
		statement.WriteString("If there are several answers, print any of them.")
	case 4:
		statement.WriteString("<image>")
	case 7:
		statement.Reset()
	}
	statement.WriteString("\n\n-----Examples-----\nInput\n1 2\n\nOutput\n3\n")
	var programs []string
	for k := range 20 {
		programs = append(programs, strings.Repeat(fmt.Sprintf("def f%d(x):\n    return x * %d + 1\n\n", k, s.IntN(1e6)), 20))
	}
	var io struct {
		Inputs  []string `json:"inputs"`
		Outputs []string `json:"outputs"`
	}
	// A log-normal size; its mean is exp(mu + sigma²/2).
	const sigma = 1.4
	size := int(math.Exp(math.Log(rowBytes-20_000) - sigma*sigma/2 + sigma*s.NormFloat64()))
	for n := 0; n < size; {
		var in, out strings.Builder
		lines := 1 + s.IntN(200)
		for range lines {
			fmt.Fprintf(&in, "%d %d %d\n", s.IntN(1000), s.IntN(1_000_000_000), s.IntN(10))
			fmt.Fprintf(&out, "%d\n", s.IntN(100))
		}
		n += in.Len() + out.Len() + 2*lines
		io.Inputs, io.Outputs = append(io.Inputs, in.String()), append(io.Outputs, out.String())
	}
	text := func(v any) *string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return ptr(string(data))
	}
	return Row{
		Question: ptr(statement.String()), Solutions: text(programs), StarterCode: ptr(""), InputOutput: text(io), Difficulty: ptr("EASY"),
		RawTags: ptr("['math', 'graphs']"), Tags: ptr("['Mathematics']"), SkillTypes: ptr("[]"), Source: ptr("codeforces"),
		URL: ptr(fmt.Sprintf("https://codeforces.com/problemset/problem/%d/A", i)), PictureNum: ptr("0"),
	}
}

// tokens counts with Qwen3's tokenizer if it is here, else with the demo's.
func tokens(t testing.TB) func(string) (int, error) {
	t.Helper()
	dir := filepath.Join(testutil.Root(), ".tools", "qwen3")
	if _, err := os.Stat(filepath.Join(dir, tokenizer.FileName)); err != nil {
		dir = filepath.Join(testutil.Root(), "internal", "demo", "model")
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func(s string) (int, error) {
		ids, err := chat.Prompt(tok, s, false)
		return len(ids), err
	}
}

// prepareLarge does all the work on a shard but running programs.
func prepareLarge(t testing.TB, path string) Manifest {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := ReadInput(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp(filepath.Dir(path), "work")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	w, err := OpenWork(filepath.Join(base, "w"))
	if err != nil {
		t.Fatal(err)
	}
	r := Recipe{Train: 2000, Dev: 256, MaxPrompt: 4096, Tries: 10, CountPrompt: tokens(t), Run: passAll, Parallel: 2}
	if _, err := r.Shard(context.Background(), w, 0, in, f, nil); err != nil {
		t.Fatal(err)
	}
	m, err := r.Finish(context.Background(), w, filepath.Join(base, "set"), 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// largeVariable names a shard that a process of its own prepares, to measure it alone.
const largeVariable = "STEADY_TEST_LARGE_SHARD"

// TestLargeShard_child is that process.
func TestLargeShard_child(t *testing.T) {
	path := os.Getenv(largeVariable)
	if path == "" {
		t.Skip("is started by TestLargeShard_memoryIsBounded and by the benchmark")
	}
	m := prepareLarge(t, path)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Printf("peak %s rows %d good %d\n", strings.Fields(peak)[0], m.Rows, m.Good)
}

// alone prepares a shard in a process of its own; it returns its peak memory in MiB and its processor time.
func alone(t testing.TB, path string, env ...string) (peak float64, cpu time.Duration, good int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestLargeShard_child$", "-test.v") //nolint:gosec // this program
	cmd.Env = append(append(os.Environ(), largeVariable+"="+path), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := bytes.Index(out, []byte("peak "))
	if at < 0 {
		t.Fatalf("no measurement in %s", out)
	}
	words := strings.Fields(string(out[at:]))
	kib, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	if good, err = strconv.Atoi(words[5]); err != nil {
		t.Fatal(err)
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return float64(kib) / 1024, time.Duration(u.Utime.Nano() + u.Stime.Nano()), good
}

// A shard ten times as large needs about as much memory: it is never in memory whole.
func TestLargeShard_memoryIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes a large file; left out by -short")
	}
	dir := t.TempDir()
	small, large := filepath.Join(dir, "small.parquet"), filepath.Join(dir, "large.parquet")
	generate(t, small, 40)
	generate(t, large, 400)
	before, _, _ := alone(t, small)
	after, _, good := alone(t, large)
	if good < 200 || good > 300 {
		t.Errorf("%d of 400 rows are good, want about two in three", good)
	}
	// The rest of 400 rows are 67 MB of cells.
	if after > before+60 || after > 512 {
		t.Errorf("%.0f MiB for 400 rows, %.0f MiB for 40: memory grows with the shard", after, before)
	}
	t.Logf("%.0f MiB for 400 rows, %.0f MiB for 40", after, before)
}

// The columns of a row group may be one page or one dictionary each, as in files of writers that look at sizes rarely. These are in memory once; that is all
// that grows with the shard. Under the limit of the command a shard of 200 MB then stays under 1 GiB, if it is one row group, too: what is tested
// here with a seventh of it and a seventh of the limit.
func TestLargeShard_wholePagesAreInMemoryOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes large files; left out by -short")
	}
	const rows, cells = 400, 400 * rowBytes / 1_000_000 // MB
	for name, write := range map[string]func(testing.TB, string, int, int){"dictionary": generateWhole[dictRow], "page": generateWhole[pageRow]} {
		path := filepath.Join(t.TempDir(), "s.parquet")
		write(t, path, rows, rows)
		peak, _, good := alone(t, path, "GOMEMLIMIT=100MiB")
		if good < 200 || good > 300 {
			t.Errorf("%s: %d of %d rows are good, want about two in three", name, good, rows)
		}
		// 64 MiB of cells, at most 32 MiB of rows at once and 24 MiB of output; a second copy of the cells would not fit.
		if peak > 200 {
			t.Errorf("%s: %.0f MiB for %d MB of cells in one row group", name, peak, cells)
		}
		t.Logf("%s: %.0f MiB for %d MB of cells in one row group", name, peak, cells)
	}
}

// BenchmarkWholeGroups prepares shards of TACO's size whose columns are one dictionary or one page in each row group of 1,000 rows, and in one row
// group of all rows.
func BenchmarkWholeGroups(b *testing.B) {
	for _, group := range []int{1000, tacoRows} {
		for name, write := range map[string]func(testing.TB, string, int, int){"dictionary": generateWhole[dictRow], "page": generateWhole[pageRow]} {
			b.Run(fmt.Sprintf("%s/%d", name, group), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "train-00002-of-00009.parquet")
				write(b, path, tacoRows, group)
				st, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				var most float64
				var cpu time.Duration
				for b.Loop() {
					peak, used, _ := alone(b, path, fmt.Sprint("GOMEMLIMIT=", MemoryLimit))
					most, cpu = max(most, peak), cpu+used
				}
				b.ReportMetric(float64(st.Size())/1e6, "MB-file")
				b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/shard")
				b.ReportMetric(most, "MiB-peak")
			})
		}
	}
}

// BenchmarkShard prepares a shard of TACO's size without running programs; docs/benchmarks/dataset.md has what it said.
func BenchmarkShard(b *testing.B) {
	path := filepath.Join(b.TempDir(), "train-00002-of-00009.parquet")
	generate(b, path, tacoRows)
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	var most float64
	var cpu time.Duration
	for b.Loop() {
		peak, used, _ := alone(b, path)
		most, cpu = max(most, peak), cpu+used
	}
	b.ReportMetric(float64(st.Size())/1e6, "MB-file")
	b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/shard")
	b.ReportMetric(most, "MiB-peak")
}
