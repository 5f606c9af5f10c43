package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// inspect asks the server what the newest execution of a workflow id does. An unknown id is closed. Errors: Busy (the server
// does not answer).
func inspect(ctx context.Context, o Options, id string) (contract.Inspected, error) {
	d, err := o.Client.DescribeWorkflow(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return contract.Inspected{Status: "unknown id"}, nil
	}
	if err != nil {
		return contract.Inspected{}, fault.New(fault.Busy, "workers.inspect", "describe %s: %w", id, err)
	}
	w := contract.Inspected{Status: d.Status.String(), Open: isOpenStatus(d.Status)}
	if w.Open {
		w.Doing, w.Mark = pending(d.RawResponse.GetPendingActivities(), time.Now())
	}
	return w, nil
}

// pending says what the oldest of the pending activities is at, and gives a mark that is the same as long as none of them moves; 0 without any.
// A question of this kind is not among them: the workflow that asks may ask about itself.
func pending(all []*workflowpb.PendingActivityInfo, now time.Time) (text string, mark uint32) {
	var list []*workflowpb.PendingActivityInfo
	for _, p := range all {
		if p.GetActivityType().GetName() != contract.InspectActivity.Name {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return "", 0
	}
	slices.SortFunc(list, func(a, b *workflowpb.PendingActivityInfo) int { // ids are numbers of events
		return cmp.Or(cmp.Compare(len(a.GetActivityId()), len(b.GetActivityId())), cmp.Compare(a.GetActivityId(), b.GetActivityId()))
	})
	h := fnv.New32a()
	for i, p := range list {
		words, m := doing(p, now)
		if i == 0 {
			text = words
		}
		fmt.Fprintf(h, "%s %d\n", p.GetActivityId(), m)
	}
	if n := len(list) - 1; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text, max(h.Sum32(), 1)
}

// doing says what a pending activity is at, and gives a mark that is the same as long as nothing of it moves: another attempt that says what the
// one before it said, or has said nothing yet, is no progress.
func doing(p *workflowpb.PendingActivityInfo, now time.Time) (text string, mark uint32) {
	var beat string
	if len(p.GetHeartbeatDetails().GetPayloads()) > 0 {
		if err := converter.GetDefaultDataConverter().FromPayloads(p.GetHeartbeatDetails(), &beat); err != nil {
			beat = "" // details of another kind say nothing here
		}
	}
	waits := p.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
	parts := []string{fmt.Sprintf("%s, attempt %d", p.GetActivityType().GetName(), p.GetAttempt())}
	if waits {
		parts = append(parts, "waits for a worker")
	}
	if beat != "" {
		parts = append(parts, "said: "+clip(beat, 120))
	}
	if t := p.GetLastHeartbeatTime(); t != nil && !waits {
		parts = append(parts, "heartbeat "+max(now.Sub(t.AsTime()), 0).Round(time.Second).String()+" ago")
	}
	if who := p.GetLastWorkerIdentity(); who != "" {
		parts = append(parts, "on "+clip(who, 60))
	}
	if f := p.GetLastFailure().GetMessage(); f != "" {
		parts = append(parts, "failed before: "+clip(f, 160))
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s", p.GetActivityType().GetName(), beat)
	return strings.Join(parts, "; "), max(h.Sum32(), 1)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
