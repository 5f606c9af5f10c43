// Command stepcosts reads the Temporal histories of a finished run and prints where the time of its training steps
// went: what ran, and how long nothing ran but the orchestration. Steps that validate or checkpoint are left out. A run that was rolled back has
// a table for each lineage.
//
//	go run ./scripts/stepcosts -address 127.0.0.1:7233 -run demo
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/steadyrl/steady/internal/contract"
)

func main() {
	address := flag.String("address", client.DefaultHostPort, "Temporal server")
	run := flag.String("run", "demo", "name of the run")
	lineage := flag.String("lineage", "", "one lineage of the run, for example l1; empty for all")
	flag.Parse()
	if err := connect(context.Background(), *address, *run, *lineage); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func connect(ctx context.Context, address, run, lineage string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address})
	if err != nil {
		return err
	}
	defer c.Close()
	return report(os.Stdout, func(at execution) ([]*historypb.HistoryEvent, error) { return history(ctx, c, at) }, run, lineage)
}

// history reads the history of one execution from the server.
func history(ctx context.Context, c client.Client, at execution) (all []*historypb.HistoryEvent, err error) {
	events := c.GetWorkflowHistory(ctx, at.id, at.run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// source reads the history of an execution; without a run id that of the newest.
type source func(at execution) ([]*historypb.HistoryEvent, error)

// span is one execution of an activity, from its start on a worker to its result on the server.
type span struct {
	what       string
	start, end time.Time
}

// loop is what the histories of a training loop tell.
type loop struct {
	spans  []span
	events int
	ends   []time.Time // of updates, in order
	groups []execution
}

type execution struct{ id, run string }

// report prints the costs of each lineage of the run, or of one.
func report(w io.Writer, read source, run, lineage string) error {
	firsts, err := loops(read, run)
	if err != nil {
		return err
	}
	found := false
	for _, first := range firsts {
		key := contract.ParseScope(strings.TrimSuffix(first.id, "/train"))
		if lineage != "" && key.Lineage != lineage {
			continue
		}
		found = true
		var l loop
		for at := first; at.run != ""; {
			if at.run, err = l.read(read, at); err != nil {
				return err
			}
		}
		for _, g := range l.groups {
			for at := g; at.run != ""; {
				if at.run, err = l.read(read, at); err != nil {
					return err
				}
			}
		}
		if len(firsts) > 1 {
			fmt.Fprintf(w, "lineage %s: ", key.Lineage)
		}
		l.print(w)
	}
	if !found {
		return fmt.Errorf("run %s has no lineage %s that trained", run, lineage)
	}
	return nil
}

// loops finds the first execution of the training loop of each lineage in the history of the run.
func loops(read source, run string) (firsts []execution, err error) {
	events, err := read(execution{id: run})
	for _, e := range events {
		if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a.GetWorkflowType().GetName() == contract.TrainLoop {
			firsts = append(firsts, execution{a.GetWorkflowExecution().GetWorkflowId(), a.GetWorkflowExecution().GetRunId()})
		}
	}
	if err == nil && len(firsts) == 0 {
		err = fmt.Errorf("run %s has no training loop", run)
	}
	return firsts, err
}

// read adds the history of one execution and returns the run id of the one that continues it.
func (l *loop) read(read source, at execution) (next string, err error) {
	scheduled := map[int64]string{}
	started := map[int64]time.Time{}
	events, err := read(at)
	for _, e := range events {
		l.events++
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			scheduled[e.GetEventId()] = a.GetActivityType().GetName()
		}
		if a := e.GetActivityTaskStartedEventAttributes(); a != nil {
			started[a.GetScheduledEventId()] = e.GetEventTime().AsTime()
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); a != nil {
			s := span{scheduled[a.GetScheduledEventId()], started[a.GetScheduledEventId()], e.GetEventTime().AsTime()}
			l.spans = append(l.spans, s)
			if s.what == contract.UpdatePolicyActivity.Name {
				l.ends = append(l.ends, s.end)
			}
		}
		if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a != nil {
			l.groups = append(l.groups, execution{a.GetWorkflowExecution().GetWorkflowId(), a.GetWorkflowExecution().GetRunId()})
		}
		if a := e.GetWorkflowExecutionContinuedAsNewEventAttributes(); a != nil {
			next = a.GetNewExecutionRunId()
		}
	}
	return next, err
}

// cost is where a step's time went, each part without what an earlier one covers.
type cost struct{ wall, update, rollout, judge, other, none time.Duration }

func (l *loop) print(w io.Writer) {
	var costs []cost
	for i := 1; i < len(l.ends); i++ {
		from, to := l.ends[i-1], l.ends[i]
		long := false
		for _, s := range l.spans {
			long = long || s.what == contract.SaveCheckpointActivity.Name && s.end.After(from) && s.start.Before(to)
			long = long || s.what == contract.SummarizeValidationActivity.Name && s.end.After(from) && s.start.Before(to)
		}
		if long {
			continue
		}
		k := cost{wall: to.Sub(from)}
		names := []string{contract.UpdatePolicyActivity.Name, contract.GenerateRolloutsActivity.Name, contract.JudgeRolloutsActivity.Name}
		k.update = l.covered(from, to, names[:1])
		k.rollout = l.covered(from, to, names[:2]) - k.update
		k.judge = l.covered(from, to, names) - k.update - k.rollout
		all := l.covered(from, to, nil)
		k.other, k.none = all-k.update-k.rollout-k.judge, k.wall-all
		costs = append(costs, k)
	}
	fmt.Fprintf(w, "%d steps (without those that validate or checkpoint), %d events of loop and groups for %d updates\n", len(costs), l.events, len(l.ends))
	if len(costs) == 0 {
		return
	}
	fmt.Fprintf(w, "%-34s %8s %8s %8s\n", "seconds a step", "median", "least", "most")
	for _, part := range []struct {
		name string
		of   func(cost) time.Duration
	}{
		{"wall", func(c cost) time.Duration { return c.wall }},
		{"update", func(c cost) time.Duration { return c.update }},
		{"rollout, not under an update", func(c cost) time.Duration { return c.rollout }},
		{"judge, under neither", func(c cost) time.Duration { return c.judge }},
		{"other activities (seal, publish)", func(c cost) time.Duration { return c.other }},
		{"no activity runs", func(c cost) time.Duration { return c.none }},
	} {
		var d []time.Duration
		for _, c := range costs {
			d = append(d, part.of(c))
		}
		slices.Sort(d)
		fmt.Fprintf(w, "%-34s %8.3f %8.3f %8.3f\n", part.name, d[len(d)/2].Seconds(), d[0].Seconds(), d[len(d)-1].Seconds())
	}
}

// covered is the time between from and to in which an activity with one of the names runs; nil is any name.
func (l *loop) covered(from, to time.Time, names []string) time.Duration {
	var inside []span
	for _, s := range l.spans {
		if (names == nil || slices.Contains(names, s.what)) && s.end.After(from) && s.start.Before(to) {
			inside = append(inside, s)
		}
	}
	slices.SortFunc(inside, func(a, b span) int { return a.start.Compare(b.start) })
	var sum time.Duration
	at := from
	for _, s := range inside {
		start, end := s.start, s.end
		if start.Before(at) {
			start = at
		}
		if end.After(to) {
			end = to
		}
		if end.After(start) {
			sum += end.Sub(start)
			at = end
		}
	}
	return sum
}
