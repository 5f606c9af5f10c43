package activities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/demo/demotest"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/ref"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/policy"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/trajectory"
)

// errKilled is what a worker sees of everything once it is killed: nothing that it does has an effect any more.
var errKilled = errors.New("killed")

// killer kills a worker at the n-th time that it comes to a named point. The points are token (one was handed to the loop),
// tool (a program runs), and before, torn and after a write of a flush, a sample or the unit, and before a removal.
type killer struct {
	mu    sync.Mutex
	point string
	n     int
	hits  map[string]int
	dead  bool
}

// at says that the worker comes to a point, and whether it dies there or is dead already.
func (k *killer) at(point string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return true
	}
	if k.hits == nil {
		k.hits = map[string]int{}
	}
	k.hits[point]++
	k.dead = point == k.point && k.hits[point] == k.n
	return k.dead
}

func (k *killer) isDead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// disk is a store in memory; it outlives workers.
type disk struct {
	artifact.Store // nil: nothing else is asked of it
	mu             sync.Mutex
	objects        map[string][]byte
}

// view is the disk as one worker sees it.
type view struct {
	*disk
	k *killer
}

// kind is the word for what a file of a unit is.
func kind(name string) string {
	word, _, _ := strings.Cut(path.Base(name), "-")
	return strings.TrimSuffix(word, ".parquet")
}

func (v view) Get(ctx context.Context, name string) ([]byte, artifact.Ref, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	data, ok := v.objects[name]
	switch {
	case v.k.isDead():
		return nil, artifact.Ref{}, errKilled
	case ctx.Err() != nil:
		return nil, artifact.Ref{}, ctx.Err()
	case !ok:
		return nil, artifact.Ref{}, fault.New(fault.NotFound, "disk.Get", "%s", name)
	}
	return data, artifact.Ref{Name: name, Digest: artifact.Digest(data), Size: int64(len(data))}, nil
}

func (v view) Put(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	old, ref, err := v.Get(ctx, name)
	if err == nil && !bytes.Equal(old, data) {
		return ref, fault.New(fault.Stale, "disk.Put", "%s exists", name)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return ref, err
	}
	return v.Replace(ctx, name, data)
}

func (v view) Replace(ctx context.Context, name string, data []byte) (artifact.Ref, error) {
	if err := ctx.Err(); err != nil {
		return artifact.Ref{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.k.at("before " + kind(name)) {
		return artifact.Ref{}, errKilled
	}
	if v.k.at("torn " + kind(name)) { // on a disk that keeps no promise
		v.objects[name] = data[:len(data)/2]
		return artifact.Ref{}, errKilled
	}
	v.objects[name] = bytes.Clone(data)
	if v.k.at("after " + kind(name)) {
		return artifact.Ref{}, errKilled
	}
	return artifact.Ref{Name: name, Digest: artifact.Digest(data), Size: int64(len(data))}, nil
}

func (v view) Remove(ctx context.Context, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.k.at("removal") {
		return errKilled
	}
	delete(v.objects, name)
	return ctx.Err()
}

// held returns the trajectories that files of the unit hold, by kind. Damaged ones are left out.
func (d *disk) held(t *testing.T, of string) []*trajectory.Trajectory {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*trajectory.Trajectory
	for name, data := range d.objects {
		if kind(name) != of {
			continue
		}
		if ts, err := trajectory.DecodeSealed(data); err == nil {
			out = append(out, ts...)
		}
	}
	return out
}

// speaker is a sampler that makes two calls with words of its own before them, then an answer. What it says at a position is a function
// of the whole prefix, the draw of the position, and the version.
type speaker struct {
	stage *stage
	k     *killer
	ctx   func() // called at every token
	mu    sync.Mutex
	ver   int
}

func (s *speaker) SetWeights(_ context.Context, version int, _ *model.Weights) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ver = version
	return nil
}

func (s *speaker) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ver
}
func (s *speaker) Score(context.Context, []int32) ([]float32, error) { return nil, nil }
func (s *speaker) Close() error                                      { return nil }

func (s *speaker) Generate(ctx context.Context, q engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	s.stage.asked(q.Tokens)
	tokens := slices.Clone(q.Tokens)
	for range q.MaxNew {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		tok := s.stage.say(tokens, q.Random, s.Version(), q.TopK)
		s.stage.said()
		if err := sink(tok); err != nil {
			return "", err
		}
		if s.k.at("token") {
			return "", errKilled
		}
		if s.ctx != nil {
			s.ctx()
		}
		if tokens = append(tokens, tok.ID); slices.Contains(q.Stop, tok.ID) {
			return engine.FinishStop, nil
		}
	}
	return engine.FinishLength, nil
}

// programs are a tool that counts its runs.
type programs struct {
	stage *stage
	k     *killer
}

func (programs) Level() sandbox.Level {
	return sandbox.Level{Python: sandbox.Python{Version: "3.13.1"}}
}

func (p programs) Run(_ context.Context, q sandbox.Program) (sandbox.Result, error) {
	p.stage.mu.Lock()
	p.stage.runs++
	p.stage.mu.Unlock()
	if p.k.at("tool") {
		return sandbox.Result{}, errKilled
	}
	return sandbox.Result{Outcome: sandbox.OK, Stdout: append([]byte("ran "), q.Source...)}, nil
}

// stage is a run in a store and what workers did on it. Every attempt has a worker of its own.
type stage struct {
	world
	disk *disk
	edit func(*config.Config)
	seed uint64
	// interval is that of flushes; 0 flushes at every token.
	interval time.Duration

	newSampler func(k *killer) engine.Sampler // default: a speaker
	weights    func(version int) *model.Weights

	mu       sync.Mutex
	requests [][]int32 // prefixes that samplers were asked to continue
	tokens   int       // tokens that speakers gave
	runs     int       // programs
}

func (s *stage) asked(tokens []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, slices.Clone(tokens))
}

func (s *stage) said() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
}

// say is the speaker's function.
func (s *stage) say(prefix []int32, random rng.Stream, version, topK int) engine.Token {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, prefix)
	_ = binary.Write(h, binary.LittleEndian, []uint64{random.Uint64(uint64(len(prefix))), uint64(version)}) //nolint:gosec // small
	sum := h.Sum(nil)
	unit := float32(sum[1]) / 256
	tok := engine.Token{LogProb: -1 - unit, Entropy: 1 + unit, Version: version, ID: int32('a' - '!' + int(sum[0])%20)} //nolint:gosec // small
	head := s.tok.Encode(chat.GenerationPrompt(true))
	turns, at := 0, 0
	for i := range prefix {
		if i+len(head) <= len(prefix) && slices.Equal(prefix[i:i+len(head)], head) {
			turns, at = turns+1, i+len(head)
		}
	}
	const free = 4 // tokens of its own in a turn
	var script []int32
	if turns <= 2 {
		script = s.tok.Encode(fmt.Sprintf("<tool_call>{\"name\": \"run_python\", \"arguments\": {\"code\": \"%d\"}}</tool_call>", turns))
	}
	end, _ := s.tok.ID(chat.TurnEnd)
	if k := len(prefix) - at - free; k >= 0 {
		if tok.ID = end; k < len(script) {
			tok.ID = script[k]
		}
	}
	for i := range topK {
		tok.TopIDs = append(tok.TopIDs, (tok.ID+int32(i))%int32(s.vocab)) //nolint:gosec // small
		tok.TopLogProbs = append(tok.TopLogProbs, -2-float32(i)-unit)
	}
	return tok
}

// world is what all stages share and nobody changes.
type world struct {
	tok   *tokenizer.Tokenizer
	set   *dataset.Set
	vocab int
}

// demoSet prepares a few demo problems in a directory.
func demoSet(ctx context.Context, dir string) (*dataset.Set, error) {
	set, err := demotest.Prepare(ctx, dir, 8, 2)
	if err != nil {
		return nil, err
	}
	return dataset.Open(set)
}

var theWorld = sync.OnceValues(func() (world, error) {
	var w world
	dir, err := os.MkdirTemp("", "steady-set-*")
	if err != nil {
		return w, err
	}
	defer os.RemoveAll(dir)
	if w.set, err = demoSet(context.Background(), dir); err != nil {
		return w, err
	}
	var data []byte
	if data, err = fs.ReadFile(demo.Model(), "tokenizer.json"); err != nil {
		return w, err
	}
	if w.tok, err = tokenizer.Parse(data); err != nil {
		return w, err
	}
	if data, err = fs.ReadFile(demo.Model(), "config.json"); err != nil {
		return w, err
	}
	var c struct {
		Vocab int `json:"vocab_size"`
	}
	err = json.Unmarshal(data, &c)
	w.vocab = c.Vocab
	return w, err
})

// newStage opens a run whose unfinished trajectories are flushed at every token.
func newStage(t *testing.T) *stage {
	t.Helper()
	w, err := theWorld()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{disk: &disk{objects: map[string][]byte{}}, world: w}
	s.edit = func(c *config.Config) {
		c.Rollout.FlushInterval = config.Duration(max(s.interval, 1))
		c.Rollout.TopKRecord, c.Rollout.Thinking = 3, false
		c.Rollout.MaxPrompt, c.Rollout.MaxResponse, c.Rollout.MaxTotal, c.Rollout.MaxTurns = 4000, 400, 4400, 4
	}
	s.newSampler = func(k *killer) engine.Sampler { return &speaker{stage: s, k: k, ver: -1} }
	s.weights = func(int) *model.Weights { return tinyState().Master }
	s.live(t, 1)
	return s
}

// live publishes a version.
func (s *stage) live(t *testing.T, version int) {
	t.Helper()
	putJSON(t, view{s.disk, &killer{}}, lay.Live(), record.Live{Version: version})
}

// hosted is the policy source of a worker.
type hosted struct {
	s *stage
	k *killer
}

func (h hosted) Published(_ context.Context, _ record.Layout, version int) (record.Version, *model.Weights, error) {
	return record.Version{Version: version}, h.s.weights(version), nil
}

func (h hosted) Exported(context.Context, record.Layout) (*model.Weights, error) {
	return nil, errKilled
}

func (h hosted) NewSampler(context.Context, record.Layout, string, model.Config) (engine.Sampler, error) {
	return h.s.newSampler(h.k), nil
}

// worker is a process that has just started.
func (s *stage) worker(t *testing.T, k *killer) *Rollout {
	t.Helper()
	c, _, err := config.DecodeJSON([]byte(goodInput))
	if err != nil {
		t.Fatal(err)
	}
	s.edit(c)
	s.seed = c.Run.Seed
	store := view{s.disk, k}
	runs := &Runs{Store: store, Backend: "ref", known: map[contract.RunKey]*Run{
		key: {Config: c, Layout: lay, Vocab: s.vocab, tok: s.tok, dataset: s.set},
	}}
	host := policy.NewHost(policy.Options{Store: store, Source: hosted{s, k}})
	t.Cleanup(func() { _ = host.Close() })
	return &Rollout{Runs: runs, Notes: &Notes{Store: view{s.disk, &killer{}}}, Policy: host, Tool: programs{s, k}}
}

// attempt runs the activity on a new worker.
func (s *stage) attempt(t *testing.T, k *killer, q contract.GenerateRequest) error {
	t.Helper()
	r := s.worker(t, k)
	_, err := r.generate(t.Context(), q, &Beat{values: make(chan any, 1e4)})
	return err
}

func request1() contract.GenerateRequest {
	return contract.GenerateRequest{RunKey: key, Unit: "groups/u", Split: "train", Problems: []int{3}, Samples: 1, Group: 2, Tag: 1, Source: "published"}
}

// count is the number of objects whose name contains part.
func (s *stage) count(part string) int {
	n := 0
	for name := range s.disk.objects {
		if strings.Contains(name, part) {
			n++
		}
	}
	return n
}

// calls is the number of calls that have their answer.
func calls(t *trajectory.Trajectory) int {
	n := 0
	for _, u := range t.Turns {
		if u.Call != nil {
			n++
		}
	}
	return n
}

// unit returns the trajectories of the finished unit, of which nothing else may be left.
func (s *stage) unit(t *testing.T, q contract.GenerateRequest) []*trajectory.Trajectory {
	t.Helper()
	if n := s.count("/groups/"); n != 1 {
		t.Errorf("%d files of the unit are left, want one", n)
	}
	ts, err := trajectory.DecodeSealed(s.disk.objects[lay.Trajectories(q.Unit)])
	if err != nil || len(ts) != len(q.Problems)*q.Samples {
		t.Fatalf("%d trajectories, %v", len(ts), err)
	}
	return ts
}

// difference compares everything but times; equal files are quicker to see than equal fields.
func difference(t *testing.T, want, got []*trajectory.Trajectory) string {
	t.Helper()
	for _, tr := range got { // those of want are 0, see whole
		tr.Seconds = 0
		for i := range tr.Turns {
			tr.Turns[i].Seconds = 0
		}
	}
	if bytes.Equal(mustEncode(t, want...), mustEncode(t, got...)) {
		return ""
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(trajectory.Trajectory{}), cmpopts.EquateEmpty())
}

// checkTokens verifies of every sampled token that it and its record are what the speaker says behind exactly the tokens before
// it, with the draw of its position, under the version that it is tagged with; and that versions never go back.
func (s *stage) checkTokens(t *testing.T, tr *trajectory.Trajectory) {
	t.Helper()
	random := rng.New(s.seed, rng.Train, tr.Tag, tr.ProblemID, tr.Sample, tr.Submission)
	last := int32(-1)
	for i, sampled := range tr.Mask() {
		if !sampled {
			continue
		}
		v := tr.Versions()[i]
		want := s.say(tr.IDs()[:i], random, int(v), tr.TopK())
		ids, lps := tr.Head(i)
		got := engine.Token{ID: tr.IDs()[i], LogProb: tr.LogProbs()[i], Entropy: tr.Entropies()[i], Version: int(v), TopIDs: ids, TopLogProbs: lps}
		if d := cmp.Diff(want, got); d != "" || v < last {
			t.Fatalf("token %d of version %d after version %d (-want +got):\n%s", i, v, last, d)
		}
		last = v
	}
	if err := tr.Check(); err != nil {
		t.Error(err)
	}
	if seq := tr.Sequence(0, 1); len(seq.Mask) != tr.Len() || len(seq.LogProbs) != tr.Len() || len(seq.TopIDs) != 3*tr.Len() || len(seq.TopLogProbs) != 3*tr.Len() {
		t.Errorf("arrays of %d, %d, %d and %d for %d tokens", len(seq.Mask), len(seq.LogProbs), len(seq.TopIDs), len(seq.TopLogProbs), tr.Len())
	}
}

// whole runs an attempt that nothing disturbs, and returns the points that it came to.
func whole(t *testing.T, q contract.GenerateRequest, interval time.Duration) ([]*trajectory.Trajectory, map[string]int) {
	t.Helper()
	s := newStage(t)
	s.interval = interval
	k := &killer{}
	if err := s.attempt(t, k, q); err != nil {
		t.Fatal(err)
	}
	ts := s.unit(t, q)
	for _, tr := range ts {
		s.checkTokens(t, tr)
		if tr.End != trajectory.EndStop || len(tr.Turns) != 3 || s.runs != 2*len(ts) {
			t.Fatalf("end %s after %d turns and %d programs, want 3 turns with 2 programs", tr.End, len(tr.Turns), s.runs)
		}
	}
	difference(t, nil, ts)
	return ts, k.hits
}

// A worker is killed at every point that it comes to: after every token, in every tool call, before, in the middle of and after every
// write. The next worker goes on from exactly what was flushed and ends with the same trajectory, bit for bit.
func TestGenerate_resumesFromEveryPoint(t *testing.T) {
	t.Parallel()
	q := request1()
	want, hits := whole(t, q, 1)
	for _, point := range []string{"token", "tool", "before partial", "torn partial", "after partial", "torn sample", "after sample", "torn trajectories", "after trajectories", "removal"} {
		if hits[point] == 0 {
			t.Errorf("point %q was never reached", point)
		}
	}
	if hits["after partial"] < want[0].Sampled() {
		t.Errorf("%d flushes of %d tokens", hits["after partial"], want[0].Sampled())
	}
	for point, n := range hits {
		t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for at := 1; at <= n; at++ {
				s := newStage(t)
				if err := s.attempt(t, &killer{point: point, n: at}, q); !errors.Is(err, errKilled) {
					t.Fatalf("time %d: %v, want the worker killed", at, err)
				}
				flushed, done := s.disk.held(t, "partial"), append(s.disk.held(t, "sample"), s.disk.held(t, "trajectories")...)
				from, answered, programsBefore := 0, 0, s.runs
				if len(flushed) == 1 {
					from, answered = flushed[0].Len(), calls(flushed[0])
				}
				s.requests, s.tokens, s.interval = nil, 0, time.Hour
				if err := s.attempt(t, &killer{}, q); err != nil {
					t.Fatalf("time %d: after the kill: %v", at, err)
				}
				got := s.unit(t, q)
				if d := difference(t, want, got); d != "" {
					t.Fatalf("time %d (-whole +resumed):\n%s", at, d)
				}
				if len(done) > 0 {
					if s.tokens != 0 {
						t.Fatalf("time %d: %d tokens were sampled of a finished trajectory", at, s.tokens)
					}
					continue
				}
				missing := want[0].Sampled()
				if from > 0 {
					missing -= flushed[0].Sampled()
				}
				if s.tokens != missing || s.runs-programsBefore != 2-answered {
					t.Fatalf("time %d: %d tokens and %d programs after a flush at %d, want %d and %d", at, s.tokens, s.runs-programsBefore, from, missing, 2-answered)
				}
				if missing > 0 && from > 0 && !bytes.Equal(raw(s.requests[0]), raw(want[0].IDs()[:len(s.requests[0])])) || len(s.requests) > 0 && len(s.requests[0]) < from {
					t.Fatalf("time %d: went on from %d tokens, flushed were %d", at, len(s.requests[0]), from)
				}
			}
		})
	}
}

func raw(ids []int32) []byte {
	out, _ := binary.Append(nil, binary.LittleEndian, ids)
	return out
}

// The same with a new version at every kill: what was flushed stays and keeps its version, everything later is of the new one.
func TestGenerate_resumesUnderANewerVersion(t *testing.T) {
	t.Parallel()
	q := request1()
	_, hits := whole(t, q, 1)
	for at := 1; at <= hits["token"]; at++ {
		s := newStage(t)
		if err := s.attempt(t, &killer{point: "token", n: at}, q); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		flushed := s.disk.held(t, "partial")
		s.live(t, 2)
		q.MinVersion, s.interval = 2, time.Hour
		if err := s.attempt(t, &killer{}, q); err != nil {
			t.Fatal(err)
		}
		q.MinVersion = 0
		tr := s.unit(t, q)[0]
		s.checkTokens(t, tr)
		n := 0
		if len(flushed) == 1 {
			n = flushed[0].Len()
			if !slices.Equal(tr.IDs()[:n], flushed[0].IDs()) || !slices.Equal(tr.Versions()[:n], flushed[0].Versions()) {
				t.Fatalf("killed at token %d: the %d flushed tokens are others now", at, n)
			}
		}
		for i, sampled := range tr.Mask() {
			if want := map[bool]int32{true: 1, false: 2}[i < n]; sampled && tr.Versions()[i] != want {
				t.Fatalf("killed at token %d: token %d is of version %d, want %d (flushed were %d)", at, i, tr.Versions()[i], want, n)
			}
		}
	}
}

// Many trajectories side by side, a worker killed again and again, each time somewhat later: the unit is that of a quiet day.
func TestGenerate_resumesSeveralSideBySide(t *testing.T) {
	t.Parallel()
	q := request1()
	q.Problems, q.Samples = []int{3, 5}, 2
	want, _ := whole(t, q, time.Hour)
	s := newStage(t)
	points := []string{"token", "after partial", "torn partial", "tool", "after sample", "before sample", "torn trajectories", "removal"}
	for i, point := range points {
		if err := s.attempt(t, &killer{point: point, n: 1 + i%3}, q); err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at %s: %v", point, err)
		}
	}
	if err := s.attempt(t, &killer{}, q); err != nil {
		t.Fatal(err)
	}
	if d := difference(t, want, s.unit(t, q)); d != "" {
		t.Errorf("(-whole +resumed):\n%s", d)
	}
}

// An answer of a tool is flushed at once, also when tokens of its turn were flushed before it, and its program never runs again.
func TestFlusher_writesAnAnswerAtOnce(t *testing.T) {
	t.Parallel()
	q := request1()
	want, hits := whole(t, q, time.Hour)
	if hits["after partial"] != 2 {
		t.Errorf("%d flushes, want one for each of 2 answers", hits["after partial"])
	}
	s := newStage(t)
	if err := s.attempt(t, &killer{point: "token", n: 3}, q); !errors.Is(err, errKilled) { // in the middle of turn 1, flushed
		t.Fatal(err)
	}
	s.interval = time.Hour
	k := &killer{point: "token", n: want[0].Turns[0].End - want[0].Turns[0].Begin - 2 + 1} // the first token of turn 2
	if err := s.attempt(t, k, q); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if f := s.disk.held(t, "partial"); len(f) != 1 || calls(f[0]) != 1 || s.runs != 1 {
		t.Fatalf("flushed %d trajectories after %d programs, want one with the answer of 1", len(f), s.runs)
	}
	if err := s.attempt(t, &killer{}, q); err != nil || s.runs != 2 {
		t.Errorf("%v after %d programs, want 2", err, s.runs)
	}
}

// A file that is not a flush of this trajectory is removed and noted, and the trajectory is made anew.
func TestGenerate_believesNoForeignFile(t *testing.T) {
	t.Parallel()
	q := request1()
	want, _ := whole(t, q, time.Hour)
	good, err := trajectory.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(f func(k *trajectory.Key, prompt []int32) (topK int)) []byte {
		k, prompt := want[0].Key, slices.Clone(want[0].IDs()[:want[0].Prompt()])
		topK := f(&k, prompt)
		data, err := trajectory.Encode([]*trajectory.Trajectory{trajectory.New(k, prompt, topK)})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	token := func(tok engine.Token) []byte {
		tr := trajectory.New(want[0].Key, want[0].IDs()[:want[0].Prompt()], 3)
		tr.BeginTurn()
		if err := tr.AppendSampled(tok); err != nil {
			t.Fatal(err)
		}
		data, err := trajectory.Encode([]*trajectory.Trajectory{tr})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ids, lps := []int32{1, 2, 3}, []float32{-2, -3, -4}
	for name, data := range map[string][]byte{
		"nothing":               {},
		"no Parquet":            []byte("damaged"),
		"half":                  good[:len(good)/2],
		"two trajectories":      mustEncode(t, want[0], want[0]),
		"no trajectory":         mustEncode(t),
		"another problem":       changed(func(k *trajectory.Key, _ []int32) int { k.Problem++; return 3 }),
		"another problem id":    changed(func(k *trajectory.Key, _ []int32) int { k.ProblemID = "x"; return 3 }),
		"another sample":        changed(func(k *trajectory.Key, _ []int32) int { k.Sample++; return 3 }),
		"another tag":           changed(func(k *trajectory.Key, _ []int32) int { k.Tag++; return 3 }),
		"another submission":    changed(func(k *trajectory.Key, _ []int32) int { k.Submission++; return 3 }),
		"another prompt":        changed(func(_ *trajectory.Key, p []int32) int { p[5]++; return 3 }),
		"another width":         changed(func(*trajectory.Key, []int32) int { return 2 }),
		"id outside":            token(engine.Token{ID: 1 << 20, LogProb: -1, TopIDs: ids, TopLogProbs: lps}),
		"negative id":           token(engine.Token{ID: -1, LogProb: -1, TopIDs: ids, TopLogProbs: lps}),
		"negative version":      token(engine.Token{ID: 1, LogProb: -1, Version: -1, TopIDs: ids, TopLogProbs: lps}),
		"NaN":                   token(engine.Token{ID: 1, LogProb: float32(math.NaN()), TopIDs: ids, TopLogProbs: lps}),
		"an id recorded twice":  token(engine.Token{ID: 1, LogProb: -1, TopIDs: []int32{1, 1, 2}, TopLogProbs: lps}),
		"more mass than one":    token(engine.Token{ID: 1, LogProb: -1, TopIDs: ids, TopLogProbs: []float32{-0.1, -0.2, -0.3}}),
		"a finished file's end": changed(func(*trajectory.Key, []int32) int { return 3 }),
	} {
		for _, file := range []string{lay.Partial(q.Unit, 3, 0), lay.Sample(q.Unit, 3, 0), lay.Trajectories(q.Unit)} {
			sound := kind(file) == "partial" && name == "a finished file's end" // a flush of the prompt alone
			if kind(file) == "trajectories" {
				if _, err := trajectory.Decode(data); err == nil {
					continue // the unit's file may hold any trajectories
				}
			}
			s := newStage(t)
			s.interval = time.Hour
			s.disk.objects[file] = data
			if err := s.attempt(t, &killer{}, q); err != nil {
				t.Errorf("%s as %s: %v, want it made again", name, kind(file), err)
				continue
			}
			if d := difference(t, want, s.unit(t, q)); d != "" {
				t.Errorf("%s as %s (-whole +got):\n%s", name, kind(file), d)
			}
			if events := s.count(lay.Events()); events != map[bool]int{true: 0, false: 1}[sound] {
				t.Errorf("%s as %s: %d notes", name, kind(file), events)
			}
		}
	}
	pin := 2 // what was flushed is of version 1
	q.Pin = &pin
	s := newStage(t)
	s.live(t, 2)
	s.disk.objects[lay.Partial(q.Unit, 3, 0)] = good
	if err := s.attempt(t, &killer{}, q); err != nil {
		t.Fatal(err)
	}
	if lo, hi, _ := s.unit(t, q)[0].VersionRange(); lo != 2 || hi != 2 {
		t.Errorf("versions %d to %d of a request pinned to 2", lo, hi)
	}
}

func mustEncode(t *testing.T, ts ...*trajectory.Trajectory) []byte {
	t.Helper()
	data, err := trajectory.Encode(ts)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An activity whose worker stops in the middle of a turn flushes what it has, and the next attempt, on another worker, samples
// the rest and nothing twice. This goes through the SDK's activity environment, heartbeats included.
func TestGenerateActivity_aStoppingWorkerLosesNothing(t *testing.T) {
	t.Parallel()
	q := request1()
	want, hits := whole(t, q, time.Hour)
	for at := 1; at < hits["token"]; at += 5 {
		s := newStage(t)
		s.interval = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s.newSampler = func(k *killer) engine.Sampler {
			return &speaker{stage: s, k: k, ver: -1, ctx: func() {
				if n++; n == at {
					cancel()
				}
			}}
		}
		_, err := s.execute(t, ctx, q)
		if err == nil || n != at {
			t.Fatalf("cancelled at token %d of %d: %v, want the activity ended there", at, n, err)
		}
		res, err := s.execute(t, t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(t, want, s.unit(t, q)); d != "" {
			t.Fatalf("cancelled at token %d (-whole +resumed):\n%s", at, d)
		}
		if s.tokens != want[0].Sampled() || res.Sampled != s.tokens || s.runs != 2 {
			t.Errorf("cancelled at token %d: %d tokens sampled in both attempts, %d programs; want %d and 2", at, s.tokens, s.runs, want[0].Sampled())
		}
		cancel()
	}
}

// execute runs the registered activity.
func (s *stage) execute(t *testing.T, ctx context.Context, q contract.GenerateRequest) (res contract.GenerateResult, err error) { //nolint:revive // t first, as in every helper
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	r := s.worker(t, &killer{})
	env.RegisterActivityWithOptions(guard(r.Notes, r.generate), activity.RegisterOptions{Name: contract.GenerateRolloutsActivity.Name})
	val, err := env.ExecuteActivity(contract.GenerateRolloutsActivity.Name, q)
	if err != nil {
		return res, err
	}
	return res, val.Get(&res)
}

// With the reference engine, over real sampled tokens: killed after any token, resumed, the bits are the same; resumed under
// other weights, the rest is what an engine with those weights says behind what was flushed.
func TestGenerate_resumesTheReferenceEngine(t *testing.T) {
	t.Parallel()
	c := tinyState().Master.Config
	q := request1()
	open := func(t *testing.T) *stage {
		t.Helper()
		s := newStage(t)
		edit := s.edit
		s.edit = func(c *config.Config) { edit(c); c.Rollout.MaxResponse = 8; c.Rollout.Temperature = 1 }
		c.Vocab, c.MaxPosition = s.vocab, 4400
		s.weights = func(version int) *model.Weights {
			w := model.NewWeights(c)
			w.Init(uint64(version), 0.5) //nolint:gosec // small
			return w
		}
		s.newSampler = func(k *killer) engine.Sampler {
			inner, err := ref.NewSampler(c)
			if err != nil {
				t.Fatal(err)
			}
			return mortal{inner, k}
		}
		return s
	}
	quiet := open(t)
	if err := quiet.attempt(t, &killer{}, q); err != nil {
		t.Fatal(err)
	}
	want := quiet.unit(t, q)
	difference(t, nil, want)
	if want[0].Sampled() != 8 {
		t.Fatalf("%d tokens, want 8", want[0].Sampled())
	}
	for at := 1; at <= 8; at++ {
		for version := 1; version <= 2; version++ {
			s := open(t)
			if err := s.attempt(t, &killer{point: "token", n: at}, q); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			s.live(t, version)
			again := q
			again.MinVersion = version
			if err := s.attempt(t, &killer{}, again); err != nil {
				t.Fatal(err)
			}
			got := s.unit(t, q)[0]
			n := want[0].Prompt() + at
			if version == 1 {
				if d := difference(t, want[:1], []*trajectory.Trajectory{got}); d != "" {
					t.Fatalf("killed at token %d (-whole +resumed):\n%s", at, d)
				}
				continue
			}
			if !slices.Equal(got.IDs()[:n], want[0].IDs()[:n]) || !slices.Equal(got.LogProbs()[:n], want[0].LogProbs()[:n]) {
				t.Fatalf("killed at token %d: what was flushed is other now", at)
			}
			fresh, err := ref.NewSampler(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := fresh.SetWeights(t.Context(), 2, s.weights(2)); err != nil {
				t.Fatal(err)
			}
			i := n
			if n == got.Len() {
				continue
			}
			_, err = fresh.Generate(t.Context(), engine.Request{
				Tokens: got.IDs()[:n], MaxNew: got.Len() - n, Sampling: engine.Sampling{Temperature: 1, TopK: 3},
				Random: rng.New(s.seed, rng.Train, got.Tag, got.ProblemID, got.Sample, got.Submission),
			}, func(tok engine.Token) error {
				ids, lps := got.Head(i)
				if d := cmp.Diff(tok, engine.Token{
					ID: got.IDs()[i], LogProb: got.LogProbs()[i], Entropy: got.Entropies()[i], Version: int(got.Versions()[i]), TopIDs: ids, TopLogProbs: lps,
				}); d != "" {
					t.Fatalf("killed at token %d, token %d (-fresh engine +resumed):\n%s", at, i, d)
				}
				i++
				return nil
			})
			if err != nil || i != got.Len() {
				t.Fatalf("%d of %d tokens, %v", i, got.Len(), err)
			}
		}
	}
}

// mortal is a sampler of a worker that can be killed.
type mortal struct {
	engine.Sampler
	k *killer
}

func (m mortal) Generate(ctx context.Context, q engine.Request, sink func(engine.Token) error) (engine.Finish, error) {
	return m.Sampler.Generate(ctx, q, func(tok engine.Token) error {
		if err := sink(tok); err != nil {
			return err
		}
		if m.k.at("token") {
			return errKilled
		}
		return nil
	})
}
