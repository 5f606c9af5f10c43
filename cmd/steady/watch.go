package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	sdklog "go.temporal.io/sdk/log"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/live"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/transcript"
	"github.com/steadyrl/steady/internal/ui"
)

type watchCmd struct {
	Data string `help:"Directory of the artifact store." default:".steady" type:"path"`
	storeFlags
	Lineage  string        `help:"Lineage of the run; default: the newest, also after a rollback." placeholder:"NAME"`
	Once     bool          `help:"Print the state of this moment and end."`
	JSON     bool          `help:"Print JSON: an object for each change, one a line."`
	Every    time.Duration `help:"Time between two looks." default:"2s"`
	HTTP     string        `name:"http" help:"Serve the pages of all runs at this address instead, as 127.0.0.1:8234; port 0 is any free one." placeholder:"ADDR"`
	Temporal bool          `help:"Ask the Temporal server too, if it answers: groups in flight, pauses, the end of a run." default:"true" negatable:""`
	Name     string        `arg:"" optional:"" name:"run" help:"Name of the run. Not needed with --http."`
}

// Run shows a run until it ends, and ends as the run did.
func (w *watchCmd) Run(ctx context.Context, s *streams) error {
	if err := w.check(); err != nil {
		return err
	}
	store, err := openStore(ctx, w.Data, w.Store)
	if err != nil {
		return err
	}
	if w.HTTP != "" {
		return w.serve(ctx, s, store)
	}
	cache := live.NewCache(store)
	asker := &asker{off: !w.Temporal}
	defer asker.close()
	show := w.shower(s)
	defer show.close()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		seen, err := w.look(ctx, cache, asker)
		if err != nil {
			return err
		}
		if seen.State == live.Absent && seen.Temporal == nil {
			near, err := near(ctx, cache, w.Name)
			if err != nil {
				return err
			}
			if w.Once {
				return fault.New(fault.NotFound, "watch", "there is no run %q in %s; %s", w.Name, store.Where(""), near).
					WithHint("without --once, watch waits for a run to start")
			}
			seen.note = fmt.Sprintf("run %s has not started: %s has no record of it; %s; waiting for it", w.Name, store.Where(""), near)
		}
		if err := show.update(seen); err != nil {
			return err
		}
		if w.Once {
			return nil
		}
		if over, err := seen.end(); over {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (w *watchCmd) check() error {
	errs := []error{w.storeFlags.check()}
	if w.Name != "" {
		errs = append(errs, checkName("run", w.Name))
	} else if w.HTTP == "" {
		errs = append(errs, fault.New(fault.Invalid, "", "no run is named").WithHint("give the name of a run, or --http ADDR for the pages of all runs"))
	}
	if w.Lineage != "" {
		errs = append(errs, checkName("--lineage", w.Lineage))
	}
	if w.Every < 100*time.Millisecond {
		errs = append(errs, fault.New(fault.Invalid, "", "--every %s: want at least 100ms", w.Every))
	}
	if w.HTTP != "" {
		if _, _, err := net.SplitHostPort(w.HTTP); err != nil {
			errs = append(errs, fault.New(fault.Invalid, "", "--http %q is no address: %w", w.HTTP, err).WithHint("give HOST:PORT, as 127.0.0.1:8234"))
		}
		if w.Once || w.JSON {
			errs = append(errs, fault.New(fault.Invalid, "", "--http serves pages: --once and --json have no meaning with it").WithHint("leave --http out to watch on the terminal"))
		}
	}
	return errors.Join(errs...)
}

// serve serves the pages until interrupted.
func (w *watchCmd) serve(ctx context.Context, s *streams, store artifact.Store) error {
	ln, err := live.Listen(ctx, w.HTTP)
	if err != nil {
		return err
	}
	if !live.IsLoopback(ln) {
		fmt.Fprintf(s.err, "warning: %s can be reached from other machines, and nobody is asked for a password\n", ln.Addr())
	}
	srv := newPages(store, ln)
	defer srv.Close()
	at := "http://" + ln.Addr().String() + "/"
	if w.Name != "" {
		at += "runs/" + w.Name + "/"
	}
	fmt.Fprintf(s.out, "pages of the runs in %s: %s\n", store.Where(""), at)
	return srv.Serve(ctx, ln)
}

// newPages returns a server for a listener.
func newPages(store artifact.Store, ln net.Listener) *live.Server {
	return live.New(live.Options{Store: store, Version: version(), Loopback: live.IsLoopback(ln)})
}

// sight is what watch sees at one moment.
type sight struct {
	*live.Status
	// Temporal is what the server says, nil if it does not answer or does not know this run.
	Temporal *answer `json:"temporal,omitempty"`
	note     string
}

// answer is what the Temporal server says of a run.
type answer struct {
	Status   string             `json:"status"` // of the workflow
	Progress *contract.Progress `json:"progress,omitempty"`
}

func (w *watchCmd) look(ctx context.Context, c *live.Cache, a *asker) (*sight, error) {
	st, err := live.Look(ctx, c, w.Name, w.Lineage)
	if err != nil {
		return nil, err
	}
	out := &sight{Status: st}
	owner := ""
	if st.State != live.Absent {
		var r record.Run
		if _, err := artifact.GetJSON(ctx, c, record.Layout{Run: w.Name, Lineage: record.FirstLineage}.RunFile(), &r); err != nil {
			return nil, err
		}
		owner = r.Owner
	}
	if w.Lineage == "" || w.Lineage == st.Lineage {
		out.Temporal = a.ask(ctx, w.Name, owner)
	}
	return out, nil
}

// end reports whether the run is over, and the exit that it gives. What Temporal says counts more than what the files say.
func (s *sight) end() (bool, error) {
	failed := func(code int, format string, args ...any) (bool, error) {
		return true, &exitError{code, fault.New(fault.Lost, "", "the run %s "+format, append([]any{s.Run}, args...)...).
			WithHint("read `steady report %s`; what was finished is kept", s.Run)}
	}
	if t := s.Temporal; t != nil {
		switch t.Status {
		case "completed":
			return true, nil
		case "canceled":
			return failed(exitInterrupted, "was cancelled")
		case "running", "continuedasnew":
			return false, nil
		default:
			return failed(exitRunFailed, "ended as %s%s", t.Status, because(s.Why))
		}
	}
	switch s.State {
	case live.Done:
		return true, nil
	case live.Failed:
		return failed(exitRunFailed, "failed%s", because(s.Why))
	case live.Stopped:
		return failed(exitRunFailed, "ended without an export: it was cancelled, or failed")
	default:
	}
	return false, nil
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + oneLine(why)
}

// asker asks the Temporal server of the environment. One that does not answer is asked again after a while.
type asker struct {
	off    bool
	c      client.Client
	silent time.Time // not before
}

// ask returns nil if the server does not answer, or knows the run by another owner: then it is another server's run. A run that
// has no record yet, and so no owner, must be running.
func (a *asker) ask(ctx context.Context, run, owner string) *answer {
	if a.off || time.Now().Before(a.silent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if a.c == nil {
		opts, err := envconfig.LoadDefaultClientOptions()
		if err == nil {
			opts.Logger = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
			a.c, err = client.DialContext(ctx, opts)
		}
		if err != nil {
			a.silent = time.Now().Add(10 * time.Second)
			return nil
		}
	}
	d, err := a.c.DescribeWorkflow(ctx, run, "")
	if _, unknown := errors.AsType[*serviceerror.NotFound](err); err != nil && !unknown {
		a.silent = time.Now().Add(10 * time.Second)
	}
	if err != nil || owner == "" && d.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || owner != "" && d.RawResponse.GetWorkflowExecutionInfo().GetFirstRunId() != owner {
		return nil
	}
	out := &answer{Status: strings.ToLower(strings.TrimPrefix(d.Status.String(), "WORKFLOW_EXECUTION_STATUS_"))}
	if d.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		if v, err := a.c.QueryWorkflow(ctx, run, "", contract.QueryProgress); err == nil {
			var p contract.Progress
			if v.Get(&p) == nil {
				out.Progress = &p
			}
		}
	}
	return out
}

func (a *asker) close() {
	if a.c != nil {
		a.c.Close()
	}
}

// near names the runs of a store whose names are like one, or all.
func near(ctx context.Context, c *live.Cache, name string) (string, error) {
	all, err := live.Runs(ctx, c)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "it has no run yet", nil
	}
	var close []string
	for _, n := range all {
		if strings.HasPrefix(n, name) || strings.HasPrefix(name, n) || distance(n, name) <= max(1, len(name)/3) {
			close = append(close, n)
		}
	}
	text := "near it: "
	if len(close) == 0 {
		close, text = all, "there is "
	}
	const most = 20
	if more := len(close) - most; more > 0 {
		close = append(slices.Clone(close[:most]), fmt.Sprintf("and %d more", more))
	}
	return text + strings.Join(close, ", "), nil
}

// distance is the number of letters to add, drop or change to make b of a, where two neighbours that changed places count as one.
func distance(a, b string) int {
	before, row, next := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(next[j]+1, row[j+1]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, make([]int, len(b)+1)
	}
	return row[len(b)]
}

// shower writes what watch sees.
type shower struct {
	display *ui.Display
	json    bool
	s       *streams
	last    string
}

func (w *watchCmd) shower(s *streams) *shower {
	out := &shower{json: w.JSON, s: s, display: ui.Plain(s.out)}
	if f, ok := s.out.(*os.File); ok && !w.Once && os.Getenv("TERM") != "dumb" {
		out.display = ui.New(f)
	}
	return out
}

func (s *shower) close() { s.display.Close() }

func (s *shower) update(v *sight) error {
	if s.json {
		var b strings.Builder
		if err := printJSON(&b, v); err != nil {
			return err
		}
		if b.String() == s.last {
			return nil
		}
		s.last = b.String()
		_, err := fmt.Fprint(s.s.out, b.String())
		return err
	}
	s.display.Show(v.block(), v.line())
	return nil
}

// phase is the state in words: that of the workflow where it says more.
func (s *sight) phase() string {
	phase := string(s.State)
	if t := s.Temporal; t != nil {
		switch {
		case t.Progress != nil && t.Progress.Phase != "":
			phase = t.Progress.Phase
		case t.Status != "running" && t.Status != "completed":
			phase = t.Status
		}
		if t.Progress != nil && t.Progress.Paused {
			phase += " [paused]"
		}
	}
	return phase
}

// line is one line of a log.
func (s *sight) line() string {
	if s.note != "" {
		return s.note
	}
	parts := []string{s.Run, s.phase()}
	if s.Steps > 0 {
		parts = append(parts, fmt.Sprintf("step %d/%d", s.Step, s.Steps))
	}
	parts = append(parts, "reward "+number(s.Reward, "%.3f"), "lag "+number(s.LagMean, "%.2f"))
	if d := s.DevText(); d != "" {
		parts = append(parts, "dev "+d)
	}
	parts = append(parts, fmt.Sprintf("dropped %d%s", s.Dropped, s.drops()), fmt.Sprintf("failures %d", s.Failures))
	if s.Why != "" {
		parts = append(parts, oneLine(s.Why))
	}
	return strings.Join(parts, ", ")
}

func (s *sight) drops() string {
	var out []string
	for _, d := range s.Drops {
		out = append(out, fmt.Sprintf("%s %d", strings.ReplaceAll(d.Reason, "_", " "), d.Groups))
	}
	if out == nil {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// block is what a terminal shows.
func (s *sight) block() []string {
	if s.note != "" {
		return []string{s.note}
	}
	head := s.Run + "  " + s.phase()
	if s.Lineage != "" && s.Lineage != record.FirstLineage {
		head += ", lineage " + s.Lineage
	}
	out := []string{head}
	add := func(name, format string, args ...any) {
		out = append(out, fmt.Sprintf("%-9s", name)+fmt.Sprintf(format, args...))
	}
	if s.Steps > 0 {
		left := ""
		if s.LeftSeconds != nil {
			left = ", about " + (time.Duration(*s.LeftSeconds) * time.Second).String() + " left"
		}
		out = append(out, fmt.Sprintf("[%s] step %d of %d%s", strings.Trim(ui.Bar(s.Step, s.Steps, 32), "[]"), s.Step, s.Steps, left))
	}
	if s.State == live.Absent || s.State == live.Preparing {
		return append(out, s.alarms()...)
	}
	add("dev", "%s", cmp.Or(s.DevText(), "not measured yet"))
	add("batch", "reward %s, lag %s mean and %s at most", number(s.Reward, "%.3f"), number(s.LagMean, "%.2f"), number(s.LagMax, "%.0f"))
	add("rates", "%s tokens/s sampled a group, %s tokens/s trained, %s s a step", number(s.RolloutRate, "%.0f"), number(s.TrainRate, "%.0f"), number(s.StepSeconds, "%.1f"))
	work := fmt.Sprintf("%d groups submitted, %d trained, %d open", s.Submitted, s.Trained, s.Open)
	if t := s.Temporal; t != nil && t.Progress != nil {
		work += fmt.Sprintf("; now %d in flight, %d ready", t.Progress.Open, t.Progress.Done)
	}
	add("groups", "%s", work)
	add("drops", "%d%s", s.Dropped, s.drops())
	if !s.Balanced {
		add("ledger", "does not balance: steady ledger %s", s.Run)
	}
	workers := cmp.Or(strings.Join(s.Workers, ", "), "none recorded")
	if t := s.Temporal; t != nil && t.Progress != nil && t.Progress.Trainer != "" {
		workers += "; trainer " + t.Progress.Trainer
	}
	add("workers", "%s", oneLine(workers))
	add("faults", "failures %d, recoveries %d", s.Failures, s.Recoveries)
	if e := s.LastEvent; e != nil {
		add("", "newest: %s, %s: %s", e.Kind, oneLine(e.Where), oneLine(e.Message))
	}
	return append(out, s.alarms()...)
}

// alarms are what a person should do something about.
func (s *sight) alarms() []string {
	var out []string
	if s.Why != "" {
		out = append(out, "failed   "+oneLine(s.Why))
	}
	if t := s.Temporal; t != nil && t.Progress != nil {
		if t.Progress.Alarm != "" {
			out = append(out, "alarm    "+oneLine(t.Progress.Alarm))
		}
		for _, line := range t.Progress.Stalled {
			out = append(out, "stalled  "+oneLine(line))
		}
	}
	return out
}

func number(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// oneLine makes a text of a run safe for a line of a terminal.
func oneLine(s string) string { return strings.Join(strings.Fields(transcript.Visible(s)), " ") }
