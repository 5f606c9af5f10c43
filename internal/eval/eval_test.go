package eval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/agent"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rollout"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// errKilled is what everything says once it is killed.
var errKilled = errors.New("killed")

// store is the files of an evaluation as a process sees them that is killed before its n-th write or removal, if n is not 0; others fail then
// too. fails, if set, is asked first.
type store struct {
	*artifact.Files
	mu    sync.Mutex
	n     int
	count int
	fails func(name string) error
}

func (s *store) change(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		if err := s.fails(name); err != nil {
			return err
		}
	}
	if s.count++; s.n > 0 && s.count >= s.n {
		return errKilled
	}
	return nil
}

func (s *store) Put(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	if err := s.change(name); err != nil {
		return artifact.Ref{}, err
	}
	return s.Files.Put(ctx, name, data)
}

func (s *store) Replace(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	if err := s.change(name); err != nil {
		return artifact.Ref{}, err
	}
	return s.Files.Replace(ctx, name, data)
}

func (s *store) Remove(ctx context.Context, name string) error {
	if err := s.change(name); err != nil {
		return err
	}
	return s.Files.Remove(ctx, name)
}

// counting is a sampler and a judge that count, and that fail when told to.
type counting struct {
	engine.Sampler
	mu           sync.Mutex
	tokens       int
	judged       int
	sampleFails  func() error
	verdictFails func() error
}

func (c *counting) Generate(ctx context.Context, q engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	return c.Sampler.Generate(ctx, q, func(tok engine.Token) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sampleFails != nil {
			if err := c.sampleFails(); err != nil {
				return err
			}
		}
		c.tokens++
		return sink(tok)
	})
}

// Judge passes as many tests as the response says, by its bytes.
func (c *counting) Judge(_ context.Context, response string, tests []judge.Test) (judge.Verdict, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdictFails != nil {
		if err := c.verdictFails(); err != nil {
			return judge.Verdict{}, err
		}
	}
	c.judged++
	sum := sha256.Sum256([]byte(response))
	v := judge.Verdict{FormatOK: sum[1]%4 > 0, Kind: judge.WrongAnswer, Passed: int(sum[0]) % (len(tests) + 1), Total: len(tests), ChargedSeconds: float64(c.judged)}
	if v.Solved() {
		v.Kind = judge.Accepted
	}
	return v, nil
}

func (c *counting) JudgeCode(ctx context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
	return c.Judge(ctx, code, tests)
}

type noTool struct{}

func (noTool) RunPython(context.Context, string, string) (agent.ToolResult, error) {
	return agent.ToolResult{Outcome: "ok", Started: true}, nil
}

// problems is a set of n problems that are evaluated, and one that is left out for each reason.
func problems(n int) dataset.EvalSet {
	return func(yield func(dataset.EvalProblem, error) bool) {
		for i := range n {
			p := dataset.EvalProblem{Problem: dataset.Problem{ID: fmt.Sprintf("p/%d", i), Index: i, Statement: fmt.Sprintf("Add %d.", i)}, Tests: []judge.Test{{Input: "1", Output: "2"}, {Input: "2"}}}
			if !yield(p, nil) {
				return
			}
			if i == 0 && !(yield(dataset.EvalProblem{Problem: dataset.Problem{ID: "f", HiddenTests: 3}, FnName: "add"}, nil) &&
				yield(dataset.EvalProblem{Problem: dataset.Problem{ID: "e"}}, &dataset.RowError{ID: "e", Reason: dataset.BadStatement, Evidence: "null"}) &&
				yield(dataset.EvalProblem{Problem: dataset.Problem{ID: "n"}}, nil)) {
				return
			}
		}
	}
}

var tiny = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	data, err := fs.ReadFile(demo.Model(), tokenizer.FileName)
	if err != nil {
		return nil, err
	}
	return tokenizer.Parse(data)
})

// options are those of an evaluation by a process that has just started, on a tiny model.
func options(t *testing.T, dir string, threads int) (Options, *store, *counting) {
	t.Helper()
	tok, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	c := model.Config{
		Vocab: tok.Size(), Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 10, MaxPosition: 1024, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true,
	}
	w := model.NewWeights(c)
	w.Init(1, 0.5)
	s, err := cpu.NewSampler(c, cpu.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.SetWeights(t.Context(), 0, w); err != nil {
		t.Fatal(err)
	}
	files, err := artifact.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, fake := &store{Files: files}, &counting{Sampler: s}
	return Options{
		Store: st, K: []int{2, 1}, Sampler: fake, Vocab: c.Vocab, Tokenizer: tok, Tool: noTool{}, Judge: fake, Slots: 2, AtOnce: 4,
		Wait: func(context.Context, int) error { return nil }, FlushInterval: 1,
		Settings: Settings{
			Data: Data{Kind: "taco", Split: "dev"}, Samples: 2, Seed: 42,
			Sampling: rollout.Settings{Temperature: 0.6, MaxTurns: 2, MaxPrompt: 900, MaxResponse: 3, MaxTotal: 903, OutputLimit: 10},
		},
	}, st, fake
}

// evaluated runs an evaluation and returns its file.
func evaluated(t *testing.T, set dataset.EvalSet, o Options) string {
	t.Helper()
	if _, err := Run(t.Context(), set, o); err != nil {
		t.Fatal(err)
	}
	text, _, err := o.Store.Get(t.Context(), ResultFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The same input gives the same bytes, for any number of threads and of responses at once, and says what was left out.
func TestRun_sameBytesForAnyThreads(t *testing.T) {
	t.Parallel()
	want := ""
	for _, threads := range []int{1, 3} {
		for _, atOnce := range []int{1, 7} {
			o, _, _ := options(t, t.TempDir(), threads)
			o.AtOnce, o.Slots = atOnce, atOnce
			got := evaluated(t, problems(5), o)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%d threads, %d at once: %s, want %s", threads, atOnce, got, want)
			}
		}
	}
	o, _, _ := options(t, t.TempDir(), 1)
	res, err := Run(t.Context(), problems(5), o)
	if err != nil {
		t.Fatal(err)
	}
	tot := res.Totals
	if left := map[string]int{LeftFunction: 1, string(dataset.BadStatement): 1, string(dataset.NoTests): 1}; tot.Problems != 5 || tot.Responses != 10 || !reflect.DeepEqual(tot.LeftOut, left) {
		t.Errorf("%+v, want 5 problems, 10 responses, left out %v", tot, left)
	}
	solved := 0
	for _, p := range res.Problems {
		solved += p.Right()
	}
	if solved == 0 || solved == 10 || tot.Metrics.Solved != solved || tot.PassAt[0].K != 1 || tot.PassAt[0].Value != float64(solved)/10 || tot.PassAt[1].Value < tot.PassAt[0].Value {
		t.Errorf("%d solved, totals %+v", solved, tot)
	}
	for _, word := range []string{"5 problems, 2 responses each", "1 bad_statement, 1 function, 1 no_tests", "pass@1", "pass@2", "95 % interval"} {
		if !strings.Contains(res.Table(), word) {
			t.Errorf("the table lacks %q:\n%s", word, res.Table())
		}
	}
}

// Killed before any of its writes and removals, an evaluation goes on: it has the same bytes in the end, and does nothing again that
// was finished.
func TestRun_goesOnAfterAKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	set := problems(2)
	o, whole, fake := options(t, t.TempDir(), 1)
	want := evaluated(t, set, o)
	tokens := fake.tokens
	for at := 1; at <= whole.count; at++ {
		dir := t.TempDir()
		o, s, _ := options(t, dir, 1)
		s.n = at
		if _, err := Run(t.Context(), set, o); !errors.Is(err, errKilled) {
			t.Fatalf("killed at %d: %v", at, err)
		}
		finished := 0
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			switch base := filepath.Base(name); {
			case base == "trajectories.parquet":
				finished += o.Settings.Samples * o.Settings.Sampling.MaxResponse
			case strings.HasPrefix(base, "sample-") && err == nil:
				if _, gone := os.Stat(filepath.Join(filepath.Dir(name), "trajectories.parquet")); gone != nil {
					finished += o.Settings.Sampling.MaxResponse
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		o, _, fake := options(t, dir, 1)
		if got := evaluated(t, set, o); got != want {
			t.Fatalf("killed at %d: %s, want %s", at, got, want)
		}
		if fake.tokens > tokens-finished {
			t.Errorf("killed at %d: %d tokens were sampled, of %d %d were finished", at, fake.tokens, tokens, finished)
		}
		o, _, fake = options(t, dir, 1)
		if got := evaluated(t, set, o); got != want || fake.tokens+fake.judged > 0 {
			t.Errorf("killed at %d, started a third time: %d tokens, %d verdicts, the same file %v", at, fake.tokens, fake.judged, got == want)
		}
	}
}

// Whatever file is damaged in whatever way, the result is the same or the evaluation is refused, never another result.
func TestRun_damagedFilesAreMadeAgain(t *testing.T) {
	t.Parallel()
	set := problems(2)
	o, _, _ := options(t, t.TempDir(), 1)
	want := evaluated(t, set, o)
	for name, damage := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"half":  func(b []byte) []byte { return b[:len(b)/2] },
		"bit":   func(b []byte) []byte { b[len(b)/3] ^= 4; return b },
		"gone":  nil,
	} {
		for _, file := range []string{"eval.json", "settings.json", "problems/000000/done.json", "problems/000000/verdicts.json", "problems/000000/trajectories.parquet"} {
			dir := t.TempDir()
			o, _, _ := options(t, dir, 1)
			evaluated(t, set, o)
			path := filepath.Join(dir, file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if damage == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, damage(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			o, _, _ = options(t, dir, 1)
			notes := 0
			o.Note = func(string) { notes++ }
			_, err = Run(t.Context(), set, o)
			if file == "settings.json" {
				if err == nil || !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Invalid) {
					t.Errorf("%s %s: %v, want a refusal", name, file, err)
				}
				continue
			}
			got, _, gerr := o.Store.Get(t.Context(), ResultFile)
			if err != nil || gerr != nil || string(got) != want {
				t.Errorf("%s %s: %v, %v: %s, want %s", name, file, err, gerr, got, want)
			}
			if file != "eval.json" && notes == 0 && !(name == "gone" && strings.HasSuffix(file, "done.json")) {
				t.Errorf("%s %s: nobody was told", name, file)
			}
		}
	}
}

// A fault that passes changes nothing. One that stays ends the evaluation with its kind, leaves no result, and is no verdict.
func TestRun_faultsAreNoVerdicts(t *testing.T) {
	t.Parallel()
	set := problems(3)
	o, _, _ := options(t, t.TempDir(), 1)
	want := evaluated(t, set, o)
	for _, kind := range fault.Kinds() {
		for where, put := range map[string]func(s *store, c *counting, f func() error){
			"sampler": func(_ *store, c *counting, f func() error) { c.sampleFails = f },
			"judge":   func(_ *store, c *counting, f func() error) { c.verdictFails = f },
			"store": func(s *store, _ *counting, f func() error) {
				s.fails = func(name string) error {
					if strings.HasPrefix(name, "problems/000004") && !strings.Contains(name, "partial") && strings.HasSuffix(name, ".parquet") {
						return f()
					}
					return nil
				}
			},
		} {
			fail := func(times int) (string, error) {
				dir := t.TempDir()
				o, s, c := options(t, dir, 1)
				o.AtOnce, o.Slots = 1, 1
				n := 0
				put(s, c, func() error {
					if n++; n <= times {
						return fault.New(kind, "test", "it fails").WithHint("mend it")
					}
					return nil
				})
				_, err := Run(t.Context(), set, o)
				if err != nil {
					if ok, eerr := o.Store.Exists(t.Context(), ResultFile); ok || eerr != nil {
						t.Errorf("%s of %s: there is a result, %v", kind, where, eerr)
					}
					o, _, _ := options(t, dir, 1)
					return evaluated(t, set, o), err
				}
				text, _, gerr := o.Store.Get(t.Context(), ResultFile)
				if gerr != nil {
					t.Fatal(gerr)
				}
				return string(text), nil
			}
			if got, err := fail(2); (err == nil) != kind.Retryable() && (kind != fault.Stale || where != "store") || got != want {
				t.Errorf("%s of %s, twice: %v, the same file %v", kind, where, err, got == want)
			}
			got, err := fail(1 << 30)
			if kind == fault.Stale && where == "store" { // it has a meaning there
				continue
			}
			if !fault.Is(err, kind) || fault.HintOf(err) == "" || got != want {
				t.Errorf("%s of %s, for ever: %v, then the same file %v", kind, where, err, got == want)
			}
		}
	}
}

func TestRun_interrupted(t *testing.T) {
	t.Parallel()
	set := problems(3)
	o, _, _ := options(t, t.TempDir(), 1)
	want := evaluated(t, set, o)
	dir := t.TempDir()
	o, _, fake := options(t, dir, 1)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	fake.sampleFails = func() error {
		if n++; n == 8 {
			cancel()
		}
		return nil
	}
	if _, err := Run(ctx, set, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want the context's error", err)
	}
	o, _, fake = options(t, dir, 1)
	if got := evaluated(t, set, o); got != want || fake.tokens > 18-7 {
		t.Errorf("after the interruption %d of 18 tokens were sampled, the same file %v", fake.tokens, got == want)
	}
}

// Every setting that is changed is refused by name; what decides nothing may change.
func TestRun_refusesOtherSettings(t *testing.T) {
	t.Parallel()
	set, dir := problems(2), t.TempDir()
	o, _, _ := options(t, dir, 1)
	first := evaluated(t, set, o)
	keys := map[string]bool{}
	var change func(v reflect.Value, s *Settings, tags string)
	change = func(v reflect.Value, s *Settings, tags string) {
		for i := range v.NumField() {
			f := v.Field(i)
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			key := strings.TrimPrefix(tags+"."+tag, ".")
			old := reflect.ValueOf(f.Interface())
			switch f.Kind() {
			case reflect.Struct:
				change(f, s, key)
				continue
			case reflect.String:
				f.SetString(f.String() + "x")
			case reflect.Bool:
				f.SetBool(!f.Bool())
			case reflect.Int, reflect.Int64:
				f.SetInt(f.Int() + 1)
			case reflect.Uint64:
				f.SetUint(f.Uint() + 1)
			case reflect.Float64:
				f.SetFloat(f.Float() + 1)
			default:
				t.Fatalf("%s is a %s", key, f.Kind())
			}
			keys[key] = true
			o, _, fake := options(t, dir, 1)
			o.Settings = *s
			_, err := Run(t.Context(), set, o)
			filled := slices.Contains([]string{"format", "data.problems", "data.digest"}, key)
			switch {
			case filled && err != nil:
				t.Errorf("%s: %v, although it is not for the caller to give", key, err)
			case !filled && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), key+" was ") || fault.HintOf(err) == ""):
				t.Errorf("%s: %v, want it named", key, err)
			}
			if fake.tokens > 0 {
				t.Errorf("%s: %d tokens were sampled", key, fake.tokens)
			}
			f.Set(old)
		}
	}
	s := o.Settings
	change(reflect.ValueOf(&s).Elem(), &s, "")
	if len(keys) < 25 {
		t.Errorf("only %d settings: %v", len(keys), keys)
	}
	o, _, _ = options(t, dir, 1)
	if _, err := Run(t.Context(), problems(3), o); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "data.digest") {
		t.Errorf("other problems: %v", err)
	}
	o, _, fake := options(t, dir, 2)
	o.K, o.AtOnce, o.Slots = []int{1}, 1, 1
	if second := evaluated(t, set, o); second == first || fake.tokens > 0 {
		t.Errorf("other values of k: %d tokens were sampled, the file is new: %v", fake.tokens, second != first)
	}
}

// What is wrong with the problems or options is found before the first token.
func TestRun_refusesBeforeItSamples(t *testing.T) {
	t.Parallel()
	bad := fault.New(fault.Corrupt, "test", "damaged")
	yields := func(ps ...dataset.EvalProblem) dataset.EvalSet {
		return func(yield func(dataset.EvalProblem, error) bool) {
			for _, p := range ps {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
	good := dataset.EvalProblem{Problem: dataset.Problem{ID: "a", Statement: "Add."}, Tests: []judge.Test{{}}}
	long := good
	long.ID, long.Statement = "long", strings.Repeat("many words ", 500)
	changing := 0
	for name, tt := range map[string]struct {
		set  dataset.EvalSet
		edit func(*Options)
		kind fault.Kind
		want string
	}{
		"no problem":      {yields(), nil, fault.Invalid, "none can be evaluated"},
		"only functions":  {yields(dataset.EvalProblem{Problem: dataset.Problem{ID: "f"}, FnName: "f"}), nil, fault.Invalid, "of 1 problems none"},
		"an id twice":     {yields(good, good), nil, fault.Invalid, `"a"`},
		"a long prompt":   {yields(good, long), nil, fault.Invalid, "long"},
		"a damaged set":   {func(yield func(dataset.EvalProblem, error) bool) { yield(good, nil); yield(good, bad) }, nil, fault.Corrupt, "damaged"},
		"k above samples": {yields(good), func(o *Options) { o.K = []int{1, 3} }, fault.Invalid, "pass@3"},
		"k of 0":          {yields(good), func(o *Options) { o.K = []int{0} }, fault.Invalid, "pass@0"},
		"no sample":       {yields(good), func(o *Options) { o.Settings.Samples = 0 }, fault.Invalid, "0 samples"},
		"another set the second time": {func(yield func(dataset.EvalProblem, error) bool) {
			p := good
			changing++
			p.Tests = []judge.Test{{Input: fmt.Sprint(changing)}}
			yield(p, nil)
		}, nil, fault.Corrupt, "changed"},
		"fewer the second time": {func(yield func(dataset.EvalProblem, error) bool) {
			if changing++; changing%2 == 0 {
				yield(good, nil)
			}
		}, nil, "", ""}, // replaced below
	} {
		if name == "fewer the second time" {
			calls := 0
			tt.set = func(yield func(dataset.EvalProblem, error) bool) {
				if calls++; calls == 1 {
					yield(good, nil)
				}
			}
			tt.kind, tt.want = fault.Corrupt, "changed"
		}
		o, _, fake := options(t, t.TempDir(), 1)
		if tt.edit != nil {
			tt.edit(&o)
		}
		_, err := Run(t.Context(), tt.set, o)
		if !fault.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) || fake.tokens > 0 {
			t.Errorf("%s: %v after %d tokens, want %s and %q", name, err, fake.tokens, tt.kind, tt.want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _, _ := options(t, dir, 1)
	if _, err := Run(t.Context(), yields(good), o); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("a directory of something else: %v", err)
	}
}

func TestRun_limit(t *testing.T) {
	t.Parallel()
	o, _, _ := options(t, t.TempDir(), 1)
	o.Settings.Data.Limit = 5 // p/0, three that are left out, p/1
	res, err := Run(t.Context(), problems(9), o)
	if err != nil || len(res.Problems) != 5 || res.Totals.Problems != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestRun_tellsProgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 2 {
		o, _, _ := options(t, dir, 1)
		var got []Progress
		o.Progress = func(p Progress) { got = append(got, p) }
		evaluated(t, problems(3), o)
		first, last := got[0], got[len(got)-1]
		if len(got) != 4 || first.Done != 0 || first.Problems != 3 || last.Done != 3 || last.Finished != 6 || last.Found != 3*round {
			t.Errorf("start %d: %+v", round, got)
		}
	}
}

func TestCompare_ofTwoResults(t *testing.T) {
	t.Parallel()
	result := func(seed uint64, set dataset.EvalSet) *Result {
		dir := t.TempDir()
		o, _, _ := options(t, dir, 1)
		o.Settings.Seed = seed
		evaluated(t, set, o)
		r, err := Read(filepath.Join(dir, ResultFile))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := result(1, problems(8)), result(2, problems(8))
	ab, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	ba, err := Compare(b, a)
	if err != nil {
		t.Fatal(err)
	}
	if ab.Problems != 8 || ab.Better+ab.Worse+ab.Equal != 8 || ab.Better != ba.Worse || len(ab.PassAt) != 2 || !slices.Equal(ab.Settings, []string{"seed was 1, now 2"}) {
		t.Errorf("%+v", ab)
	}
	for i, p := range ab.PassAt {
		want := b.Totals.PassAt[i].Value - a.Totals.PassAt[i].Value
		if d := p.Value - want; d > 1e-12 || d < -1e-12 || p.Low != -ba.PassAt[i].High || p.High != -ba.PassAt[i].Low {
			t.Errorf("pass@%d: %+v one way, %+v the other, want %v", p.K, p, ba.PassAt[i], want)
		}
	}
	if text := ab.Table(); !strings.Contains(text, "seed was 1, now 2") || !strings.Contains(text, "pass@2") {
		t.Error(text)
	}
	if _, err := Compare(a, result(1, problems(7))); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("other problems: %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"text": "x", "object": "{}", "cut": `{"settings": {"format": 1, "samples": 1, "data": {"problems": 2}}, "problems": [{"id": "a"}]}`, "fewer": `{"settings": {"format": 1, "samples": 1, "data": {"problems": 1}}, "problems": [{"id": "a"}]}`} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, bytes.NewBufferString(text).Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "absent")); !fault.Is(err, fault.NotFound) {
		t.Errorf("absent: %v", err)
	}
}
