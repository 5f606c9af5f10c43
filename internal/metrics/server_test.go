package metrics

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestServe_answers(t *testing.T) {
	t.Parallel()
	var notReady error
	s, err := Serve("127.0.0.1:0", used(t), func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the question has no end")
		}
		return notReady
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, s, "/metrics"); code != http.StatusOK || !strings.Contains(body, "\nsteady_run_step{run=\"r\"} 4\n") || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if code, body := get(t, s, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	if code, body := get(t, s, "/readyz"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	notReady = errors.New("no server")
	if code, body := get(t, s, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no server") {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, _ := get(t, s, "/debug"); code != http.StatusNotFound {
		t.Errorf("/debug: %d", code)
	}

	// The address is taken now.
	_, err = Serve(s.Addr(), New("v"), nil)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), s.Addr()) || fault.HintOf(err) == "" {
		t.Errorf("a taken address: %v, want Invalid with the address and a hint", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Serve(s.Addr(), New("v"), nil)
	if err != nil {
		t.Fatalf("the address is not free after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestServe_refusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"9464", "host:port:x", "127.0.0.1:99999", "256.1.1.1:0"} {
		if _, err := Serve(addr, New("v"), nil); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want Invalid with a hint", addr, err)
		}
	}
}

// Sources are asked once in a while, however often somebody scrapes, and one that fails says so.
func TestCollect_asksSeldomAndSaysWhatIsAway(t *testing.T) {
	t.Parallel()
	s := New("v")
	asked, away := 0, error(nil)
	s.Collect(Sources{
		Store:  func() (uint64, uint64, error) { asked++; return 1, 2, away },
		Queues: func(context.Context) ([]Queue, error) { return []Queue{{Name: "q", Type: "activity"}}, away },
		GPUs:   func() ([]GPU, error) { return nil, away },
	})
	now := time.Unix(100, 0)
	s.src.now = func() time.Time { return now }
	for range 3 {
		if got := values(t, s); got["store_up{}"] != 1 || got["server_up{}"] != 1 {
			t.Errorf("got %v", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	now, away = now.Add(sourceAge), errors.New("away")
	got := values(t, s)
	for _, up := range []string{"store_up{}", "server_up{}"} {
		if v, ok := got[up]; !ok || v != 0 {
			t.Errorf("%s = %v, %v; want 0", up, v, ok)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "store_free") || strings.HasPrefix(name, "queue_") {
			t.Errorf("%s is of a source that is away", name)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want twice", asked)
	}
}

// Runs that end in another process lose their series here too; those that are open, that were heard of lately, or about which the
// server says nothing, keep them.
func TestCollect_aRunThatEndedElsewhereIsForgotten(t *testing.T) {
	t.Parallel()
	s := New("v")
	now := time.Unix(100, 0)
	s.runs.now = func() time.Time { return now }
	s.Published("ended", 1)
	s.Published("open", 1)
	s.Published("unknown", 1)
	var asked []string
	s.Collect(Sources{Closed: func(_ context.Context, run string) (bool, error) {
		asked = append(asked, run)
		if run == "unknown" {
			return true, errors.New("away")
		}
		return run != "open", nil
	}})
	s.src.now = func() time.Time { return now }
	gather(t, s)
	if len(asked) != 0 {
		t.Errorf("%v were asked about though they are new", asked)
	}
	now = now.Add(quietTime)
	s.Published("busy", 1)
	gather(t, s)
	now = now.Add(sourceAge)
	got := values(t, s)
	for run, want := range map[string]bool{"ended": false, "open": true, "unknown": true, "busy": true} {
		if _, ok := got["run_step{run="+run+"}"]; ok != want {
			t.Errorf("the series of %s are there: %v, want %v", run, ok, want)
		}
		if slices.Contains(asked, run) != (run != "busy") {
			t.Errorf("asked about %v", asked)
		}
	}
}
