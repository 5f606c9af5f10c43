package live

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
)

// large leaves a run of 12,800 trajectories: 200 steps of 16 groups of 4, with a validation every 25 steps. The files of all groups have
// the same bytes, which is nothing to a server that reads each of them.
func large(tb testing.TB) (f *fixture, trajectories int) {
	tb.Helper()
	const steps, groups = 200, 16
	f = newFixture(tb, tb.TempDir(), "alpha")
	f.start(steps + 10)
	tok := f.tokenizer()
	var ts []*trajectory.Trajectory
	for k := range groupSize {
		ts = append(ts, f.trajectory(tok, 0, 0, k, 3))
	}
	data := f.encode(ts...)
	for step := 1; step <= steps; step++ {
		f.largeStep(step, groups, data, ts)
	}
	for step := 0; step <= steps; step += 25 {
		f.validation(step, 2+step/50)
	}
	for i := range 40 {
		f.event(i, []string{"Lost", "reacquired"}[i%2], "trainer host-a", "no heartbeat for 20 s", i)
	}
	return f, steps * groups * groupSize
}

func (f *fixture) largeStep(step, groups int, data []byte, ts []*trajectory.Trajectory) {
	f.tb.Helper()
	b := record.Sealed{Step: step, Temperature: 1, Rollout: record.BatchMetrics{RewardMean: record.Num(0.5), LagMean: record.Num(1.5), ToolShare: record.Num(0.25)}}
	led := record.Ledger{Step: step, NextGroup: step * groups, Cursor: record.Cursor{Next: step * groups}}
	for i := range groups {
		n := (step-1)*groups + i
		unit := record.GroupUnit(n, step, n, 0)
		g := record.Group{N: n, Problem: n, ProblemID: problemID(n), Tag: step, File: f.put(f.l.Trajectories(unit), data)}
		g.Verdicts = f.json(f.l.Verdicts(unit), verdictsOf(unit, g.File, ts))
		b.Groups = append(b.Groups, g)
		for k := range groupSize {
			b.Samples = append(b.Samples, record.Sample{Group: n, Index: k, Reward: 0.5, Advantage: 0.25, Tokens: 300, Sampled: 150, MinVersion: step - 1, MaxVersion: step - 1})
		}
		led.Submitted = append(led.Submitted, record.Submitted{N: n, Problem: n, Tag: step})
		led.Trained, led.TrainedTokens = append(led.Trained, n), append(led.TrainedTokens, 600)
	}
	f.json(f.l.Batch(step), b)
	f.json(f.l.Ledger(step), led)
	f.json(f.l.WeightsInfo(step), record.Version{Version: step})
	f.json(f.l.Result(step), record.Result{Step: step, Metrics: record.UpdateMetrics{Loss: record.Num(-0.01), GradNorm: record.Num(0.5)}})
	f.stamp(f.l.Result(step), step)
}

// With 12,800 trajectories a refresh opens no file, a step opens its own, and a page of the list those of its rows.
func TestServer_twelveThousandTrajectoriesCostNoMoreThanTwelve(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 7,000 files")
	}
	f, n := large(t)
	s := New(Options{Store: f.store(), Version: "test", Patience: time.Minute})
	t.Cleanup(s.Close)
	cost := func(path string, headers ...string) (int64, *httptest.ResponseRecorder) {
		before := s.Cache().Opened()
		w := get(s, path, headers...)
		return s.Cache().Opened() - before, w
	}
	_, w := cost("/runs/alpha/")
	tag := w.Header().Get("ETag")
	if opened, w := cost("/runs/alpha/", "If-None-Match", tag); opened != 0 || w.Code != 304 {
		t.Errorf("a refresh: status %d, %d files opened", w.Code, opened)
	}
	cost("/runs/alpha/trajectories")
	if opened, _ := cost("/runs/alpha/trajectories?page=100"); opened > 2*pageRows/groupSize+4 {
		t.Errorf("a page of the list: %d files opened", opened)
	}
	want(t, s, "/runs/alpha/trajectories?page=256", fmt.Sprintf("12751 to %d of %d trajectories", n, n))
	data, err := os.ReadFile(filepath.Join(f.root, f.l.Trajectories(record.GroupUnit(0, 1, 0, 0))))
	if err != nil {
		t.Fatal(err)
	}
	ts, err := trajectory.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	f.largeStep(201, 16, data, ts)
	if opened, w := cost("/runs/alpha/", "If-None-Match", tag); opened > 100 || w.Code != 200 {
		t.Errorf("a refresh after a step: status %d, %d files opened", w.Code, opened)
	}
}

func benchmark(b *testing.B, prepare func(*fixture, *Server), each func(*fixture, *Server, int)) {
	f, _ := large(b)
	s := New(Options{Store: f.store(), Version: "test", Patience: time.Minute})
	defer s.Close()
	prepare(f, s)
	before := s.Cache().Opened()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		each(f, s, i)
	}
	b.ReportMetric(float64(s.Cache().Opened()-before)/float64(b.N), "files/op")
}

// BenchmarkFirstPage is the report of a server that has just started.
func BenchmarkFirstPage(b *testing.B) {
	f, _ := large(b)
	b.ResetTimer()
	opened := int64(0)
	for range b.N {
		s := New(Options{Store: f.store(), Version: "test"})
		get(s, "/runs/alpha/")
		opened += s.Cache().Opened()
		s.Close()
	}
	b.ReportMetric(float64(opened)/float64(b.N), "files/op")
}

// BenchmarkRefreshNothingNew is a browser that asks again.
func BenchmarkRefreshNothingNew(b *testing.B) {
	tag := ""
	benchmark(b, func(_ *fixture, s *Server) { tag = get(s, "/runs/alpha/").Header().Get("ETag") },
		func(_ *fixture, s *Server, _ int) { get(s, "/runs/alpha/", "If-None-Match", tag) })
}

// BenchmarkRefreshAfterARecord is the report after one record more, an event.
func BenchmarkRefreshAfterARecord(b *testing.B) {
	benchmark(b, func(_ *fixture, s *Server) { get(s, "/runs/alpha/") }, func(f *fixture, s *Server, i int) {
		b.StopTimer()
		f.event(1000+i, "Lost", "x", "y", 1)
		b.StartTimer()
		get(s, "/runs/alpha/")
	})
}

// BenchmarkListPage is a page of the list of trajectories that was not looked at before.
func BenchmarkListPage(b *testing.B) {
	benchmark(b, func(_ *fixture, s *Server) { get(s, "/runs/alpha/trajectories") },
		func(_ *fixture, s *Server, i int) { get(s, fmt.Sprintf("/runs/alpha/trajectories?page=%d", 2+i%255)) })
}

// BenchmarkFilterFirst is the first filter by outcome, which reads the verdicts and the heads of all 3,200 groups.
func BenchmarkFilterFirst(b *testing.B) {
	f, _ := large(b)
	b.ResetTimer()
	for range b.N {
		s := New(Options{Store: f.store(), Version: "test", Patience: 10 * time.Minute})
		get(s, "/runs/alpha/trajectories?outcome=solved")
		s.Close()
	}
}

// BenchmarkFilterAgain is another filter after that.
func BenchmarkFilterAgain(b *testing.B) {
	benchmark(b, func(_ *fixture, s *Server) { get(s, "/runs/alpha/trajectories?outcome=solved") },
		func(_ *fixture, s *Server, _ int) {
			get(s, "/runs/alpha/trajectories?outcome=unsolved&end=length&sort=tokens")
		})
}

// BenchmarkTrajectory is the page of one trajectory.
func BenchmarkTrajectory(b *testing.B) {
	benchmark(b, func(*fixture, *Server) {}, func(_ *fixture, s *Server, i int) {
		get(s, fmt.Sprintf("/runs/alpha/groups/%d/1?colour=version", i%3200))
	})
}

// BenchmarkStatus is a look of steady watch with nothing new.
func BenchmarkStatus(b *testing.B) {
	var c *Cache
	benchmark(b, func(f *fixture, _ *Server) { c = NewCache(f.store()) }, func(_ *fixture, _ *Server, _ int) {
		if _, err := Look(b.Context(), c, "alpha", ""); err != nil {
			b.Fatal(err)
		}
	})
}
