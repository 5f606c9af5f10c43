package live

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
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
	f.json(f.l.Ledger(step), led)
	f.json(f.l.WeightsInfo(step), record.Version{Version: step})
	recordtest.PutStep(f.tb, f.store(), f.l, b, record.Result{Metrics: record.UpdateMetrics{Loss: record.Num(-0.01), GradNorm: record.Num(0.5)}})
	f.stamp(f.l.Result(step), step)
}

// With 12,800 trajectories a refresh opens no file, a step opens its own, and a page of the list those of its rows.
func TestServer_twelveThousandTrajectoriesCostNoMoreThanTwelve(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 7,000 files; left out by -short")
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

// BenchmarkLive measures pages of the large run. Besides the time it reports files opened and processor time, which other load on the
// machine changes less.
func BenchmarkLive(b *testing.B) {
	f, _ := large(b)
	fresh := func() *Server {
		return New(Options{Store: f.store(), Version: "test", Patience: 10 * time.Minute})
	}
	bench := func(name string, s *Server, each func(s *Server, i int)) {
		b.Run(name, func(b *testing.B) {
			opened, used := int64(0), processor()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				one := s
				if one == nil {
					one = fresh()
				}
				before := one.Cache().Opened()
				each(one, i)
				opened += one.Cache().Opened() - before
				if s == nil {
					one.Close()
				}
			}
			b.ReportMetric(float64(opened)/float64(b.N), "files/op")
			b.ReportMetric(float64((processor()-used).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
	warm := fresh()
	defer warm.Close()
	tag := get(warm, "/runs/alpha/").Header().Get("ETag")
	bench("first report", nil, func(s *Server, _ int) { get(s, "/runs/alpha/") })
	bench("report, nothing new", warm, func(s *Server, _ int) { get(s, "/runs/alpha/", "If-None-Match", tag) })
	bench("report, one event more", warm, func(s *Server, i int) {
		f.event(1000+i, "Lost", "x", "y", 1)
		get(s, "/runs/alpha/")
	})
	bench("first list", nil, func(s *Server, _ int) { get(s, "/runs/alpha/trajectories") })
	bench("list, another page", warm, func(s *Server, i int) { get(s, fmt.Sprintf("/runs/alpha/trajectories?page=%d", 2+i%255)) })
	bench("first filter by outcome", nil, func(s *Server, _ int) { get(s, "/runs/alpha/trajectories?outcome=solved") })
	get(warm, "/runs/alpha/trajectories?outcome=solved")
	bench("another filter", warm, func(s *Server, _ int) { get(s, "/runs/alpha/trajectories?outcome=unsolved&end=length&sort=tokens") })
	bench("one trajectory", warm, func(s *Server, i int) { get(s, fmt.Sprintf("/runs/alpha/groups/%d/1?colour=version", i%3200)) })
	bench("ledger", warm, func(s *Server, i int) { get(s, fmt.Sprintf("/runs/alpha/ledger?page=%d", 1+i%64)) })
	bench("runs, nothing new", warm, func(s *Server, _ int) { get(s, "/") })
	bench("watch, nothing new", warm, func(s *Server, _ int) {
		if _, err := Look(b.Context(), s.Cache(), "alpha", ""); err != nil {
			b.Fatal(err)
		}
	})
}

// processor is the processor time of this process.
func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
