package live

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// hostile stands in texts of the run: what a browser or a terminal must not act on.
const hostile = "\x1b[2J\u202e<script>alert(1)</script>\"'&"

// groupSize is the number of trajectories of a group of the fixture.
const groupSize = 4

// fixture writes an invented run into a directory, in the layout of a store. Everything is a function of its fields.
type fixture struct {
	tb     testing.TB
	root   string
	l      record.Layout
	groups int // a step
	rate   float64
}

var loadTokenizer = sync.OnceValues(func() ([]byte, error) { return fs.ReadFile(demo.Model(), tokenizer.FileName) })

func newFixture(tb testing.TB, root, run string) *fixture {
	tb.Helper()
	f := &fixture{tb: tb, root: root, l: record.Layout{Run: run, Lineage: "l0"}, groups: 3, rate: 0.001}
	return f
}

func (f *fixture) put(name string, data []byte) artifact.Ref {
	f.tb.Helper()
	p := filepath.Join(f.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		f.tb.Fatal(err)
	}
	tmp := filepath.Join(filepath.Dir(p), ".tmp-"+filepath.Base(p)) // as a store: whole or not at all
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		f.tb.Fatal(err)
	}
	if err := os.Rename(tmp, p); err != nil {
		f.tb.Fatal(err)
	}
	return artifact.Ref{Name: name, Digest: artifact.Digest(data), Size: int64(len(data))}
}

func (f *fixture) json(name string, v any) artifact.Ref {
	f.tb.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		f.tb.Fatal(err)
	}
	return f.put(name, artifact.Seal(append(data, '\n')))
}

// start leaves what a run has when it begins.
func (f *fixture) start(steps int) {
	f.tb.Helper()
	f.json(f.l.RunFile(), record.Run{
		Run: f.l.Run, Owner: "owner-of-" + f.l.Run, Lineage: f.l.Lineage, Recipe: "demo", Steady: "v0.1.0", Engine: "cpu", BaseModel: "bundled", Started: "2026-03-01T09:00:00Z",
	})
	f.json(f.l.ConfigFile(), map[string]any{
		"recipe": "demo", "mode": "async", "run": map[string]any{"steps": steps}, "rollout": map[string]any{"group_size": groupSize},
		"optim": map[string]any{"learning_rate": f.rate}, "model": map[string]any{"path": hostile},
	})
	f.json(f.l.Worker("host-a"), record.Worker{Host: "host-a", Steady: "v0.1.0", Engine: "cpu, avx512"})
	f.json(f.l.WeightsInfo(0), record.Version{Digest: artifact.Digest([]byte("base"))})
	tok, err := loadTokenizer()
	if err != nil {
		f.tb.Fatal(err)
	}
	f.put(f.l.Base()+"/"+tokenizer.FileName, tok)
}

func (f *fixture) tokenizer() *tokenizer.Tokenizer {
	f.tb.Helper()
	data, err := loadTokenizer()
	if err != nil {
		f.tb.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		f.tb.Fatal(err)
	}
	return tok
}

// trajectory is a response whose versions change half-way; the last of a group calls the tool, the second is cut.
func (f *fixture) trajectory(tok *tokenizer.Tokenizer, problem, group, sample, step int) *trajectory.Trajectory {
	f.tb.Helper()
	t := trajectory.New(trajectory.Key{ProblemID: problemID(problem), Problem: problem, Split: "train", Group: group, Sample: sample, Tag: step},
		tok.Encode("Read two integers a < b and print their sum. "+hostile), 2)
	say := func(text string) {
		t.BeginTurn()
		ids := tok.Encode(text)
		for i, id := range ids {
			version := max(0, step-2)
			if 2*i >= len(ids) {
				version = max(0, step-1)
			}
			if err := t.AppendSampled(engine.Token{
				ID: id, LogProb: -0.01 * float32(i%300), Entropy: 0.5, Version: version, TopIDs: []int32{id, (id + 1) % 400}, TopLogProbs: []float32{-0.01, -5},
			}); err != nil {
				f.tb.Fatal(err)
			}
		}
	}
	if sample == groupSize-1 {
		say("Let me see.\n<tool_call>\n{\"name\": \"run_python\"}\n</tool_call>" + hostile)
		t.Turns[0].Call = &trajectory.Call{Status: "ran", Started: true, Outcome: "ok", Seconds: 0.25, QueueSeconds: 0.125}
		t.AppendInserted(tok.Encode("\ntool says 8 " + hostile + "\n"))
	}
	say(fmt.Sprintf("```python\na, b = map(int, input().split())\nprint(a + b * %d)  # größer 終\n```%s", sample+1, hostile))
	for i := range t.Turns {
		t.Turns[i].Seconds = 0.5
	}
	t.End, t.Seconds = trajectory.EndStop, 1.25
	if sample == 1 {
		t.End = trajectory.EndLength
	}
	return t
}

func problemID(n int) string { return fmt.Sprintf("demo/%04d", n) }

// unit leaves the files of a group: passed tests are 4, 2, 0 and 1 of 4.
func (f *fixture) unit(name string, ts []*trajectory.Trajectory) (file, verdicts artifact.Ref) {
	f.tb.Helper()
	data, err := trajectory.Encode(ts)
	if err != nil {
		f.tb.Fatal(err)
	}
	file = f.put(f.l.Trajectories(name), data)
	return file, f.json(f.l.Verdicts(name), verdictsOf(name, file, ts))
}

func verdictsOf(name string, file artifact.Ref, ts []*trajectory.Trajectory) map[string]any {
	items := []map[string]any{}
	for i, t := range ts {
		passed := []int{4, 2, 0, 1}[i%groupSize]
		kind := map[bool]string{true: "accepted", false: "wrong_answer"}[passed == 4]
		tests := []map[string]any{}
		for n := range 4 {
			one := map[string]any{"kind": "accepted", "charged_s": 0.012, "wall_s": 0.02, "peak_rss_bytes": 9 << 20}
			if n >= passed {
				one["kind"], one["exit_code"] = "wrong_answer", 1
			}
			tests = append(tests, one)
		}
		items = append(items, map[string]any{
			"problem_id": t.ProblemID, "sample": t.Sample, "reward": float64(passed) / 4, "format_ok": true, "kind": kind, "passed": passed, "total": 4, "tests": tests, "charged_s": 0.048,
		})
	}
	return map[string]any{"unit": name, "file": file, "items": items}
}

// step leaves batch, result and ledger record of a step, and its groups. Before step 1, group 0 is dropped and group 1 stays open.
func (f *fixture) step(step int) {
	f.tb.Helper()
	tok := f.tokenizer()
	b := record.Sealed{Step: step, Temperature: 1}
	led := record.Ledger{Step: step}
	if step == 1 {
		led.Submitted = []record.Submitted{{N: 0, Problem: 900, Tag: 1}, {N: 1, Problem: 901, Tag: 1}}
		led.Dropped = []record.Drop{{N: 0, Reason: "stale", Tag: 1, Tokens: 130, Finished: true}}
		f.unit(record.GroupUnit(0, 1, 900, 0), []*trajectory.Trajectory{f.trajectory(tok, 900, 0, 0, 1)})
		f.put(f.l.Sample(record.GroupUnit(1, 1, 901, 0), 901, 0), f.encode(f.trajectory(tok, 901, 1, 0, 1)))
		unfinished := f.trajectory(tok, 901, 1, 1, 1)
		unfinished.End = ""
		f.put(f.l.Partial(record.GroupUnit(1, 1, 901, 0), 901, 1), f.encode(unfinished))
	}
	for i := range f.groups {
		n := 2 + (step-1)*f.groups + i
		led.Submitted, led.Trained = append(led.Submitted, record.Submitted{N: n, Problem: n, Tag: step}), append(led.Trained, n)
		led.TrainedTokens = append(led.TrainedTokens, 120+10*i)
		g := record.Group{N: n, Problem: n, ProblemID: problemID(n), Tag: step}
		var ts []*trajectory.Trajectory
		for k := range groupSize {
			t := f.trajectory(tok, n, n, k, step)
			ts = append(ts, t)
			lo, hi, _ := t.VersionRange()
			b.Samples = append(b.Samples, record.Sample{
				Group: n, Index: k, Reward: []float64{1, 0.5, 0, 0.25}[k], Advantage: []float64{0.5625, 0.0625, -0.4375, -0.1875}[k],
				Tokens: t.Len(), Sampled: t.Sampled(), MinVersion: lo, MaxVersion: hi,
			})
		}
		g.File, g.Verdicts = f.unit(record.GroupUnit(n, step, n, 0), ts)
		b.Groups = append(b.Groups, g)
	}
	led.NextGroup, led.Cursor = 2+step*f.groups, record.Cursor{Next: 2 + step*f.groups}
	if step >= 1 {
		led.Cursor.Returned = []record.Returned{{Problem: 900, Submission: 1}}
	}
	x := float64(step) / 10
	b.Rollout = record.BatchMetrics{RewardMean: record.Num(0.4 + x/4), LagMean: record.Num(1.5), LagMax: record.Num(2), RolloutRate: record.Num(5200), Drops: record.Num(float64(step % 2))}
	f.json(f.l.WeightsInfo(step), record.Version{Version: step, Digest: artifact.Digest([]byte("w"))})
	f.json(f.l.Ledger(step), led)
	recordtest.PutStep(f.tb, f.store(), f.l, b, record.Result{
		WeightsDigest: artifact.Digest(fmt.Append(nil, "w", step)), StateDigest: artifact.Digest(fmt.Append(nil, "s", step)), Trainer: "host-a, epoch 1",
		Metrics: record.UpdateMetrics{Loss: record.Num(-0.02 * x), GradNorm: record.Num(0.9 - x/3), Entropy: record.Num(0.6), TrainRate: record.Num(9000), Seconds: record.Num(0.9)},
	})
	f.stamp(f.l.Result(step), step)
}

// stamp gives the record of a step a time of its own: steps are 90 s apart.
func (f *fixture) stamp(name string, step int) {
	f.tb.Helper()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC).Add(time.Duration(step) * 90 * time.Second)
	if err := os.Chtimes(filepath.Join(f.root, filepath.FromSlash(name)), at, at); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fixture) encode(ts ...*trajectory.Trajectory) []byte {
	f.tb.Helper()
	data, err := trajectory.Encode(ts)
	if err != nil {
		f.tb.Fatal(err)
	}
	return data
}

// validation leaves a validation of 8 problems, of which solved are solved.
func (f *fixture) validation(step, solved int) {
	f.tb.Helper()
	name := record.StepName(step)
	tok := f.tokenizer()
	v := record.Validation{Name: name, Version: step, Problems: 8, Source: "published", Seconds: 3, Units: []string{record.EvalUnit(name, 0)}}
	var ts []*trajectory.Trajectory
	for i := range 8 {
		it := record.DevItem{Problem: fmt.Sprintf("dev/%d", i), Kind: "accepted", Passed: 4, Total: 4}
		if i >= solved {
			it.Kind, it.Passed = "wrong_answer", 1
		}
		v.Items = append(v.Items, it)
		t := f.trajectory(tok, i, 0, 0, step)
		t.ProblemID, t.Split = it.Problem, "dev"
		ts = append(ts, t)
	}
	f.unit(v.Units[0], ts)
	v.Metrics = record.DevMetrics{Solved: solved, Acc: float64(solved) / 8, PassRate: float64(solved) / 8, FormatOK: 1}
	f.json(f.l.Validation(name), v)
}

func (f *fixture) event(id int, kind, where, message string, step int) {
	f.tb.Helper()
	at := time.Date(2026, 3, 1, 9, 0, 40*id, 0, time.UTC).Format(time.RFC3339Nano)
	f.json(f.l.Event(fmt.Sprintf("%04d", id)), record.Event{Time: at, Kind: kind, Where: where, Message: message, Step: step})
}

// whole leaves a run of so many steps that has not ended, with events.
func (f *fixture) whole(steps int) {
	f.tb.Helper()
	f.start(10)
	f.validation(0, 2)
	for n := 1; n <= steps; n++ {
		f.step(n)
	}
	f.validation(steps, 5)
	f.event(1, "Infrastructure", "group 1", "dropped: "+hostile, 1)
	f.event(2, "Lost", "trainer host-a", "no heartbeat for 20 s", 2)
	f.event(3, "reacquired", "trainer host-b", "epoch 2", 2)
}

func (f *fixture) store() *artifact.Files {
	f.tb.Helper()
	s, err := artifact.NewFiles(f.root)
	if err != nil {
		f.tb.Fatal(err)
	}
	return s
}

// serve starts a server on the fixture's store.
func (f *fixture) serve() *Server {
	f.tb.Helper()
	s := New(Options{Store: f.store(), Version: "test", Patience: time.Minute})
	f.tb.Cleanup(s.Close)
	return s
}

// get asks for a page.
func get(s *Server, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// want fails unless a page is there and has the texts.
func want(tb testing.TB, s *Server, path string, texts ...string) string {
	tb.Helper()
	w := get(s, path)
	body := w.Body.String()
	if w.Code != http.StatusOK {
		tb.Fatalf("GET %s: status %d\n%s", path, w.Code, body)
	}
	for _, text := range texts {
		if !strings.Contains(strings.ReplaceAll(body, "&#43;", "+"), text) {
			tb.Errorf("GET %s lacks %q", path, text)
		}
	}
	return body
}
