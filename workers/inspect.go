package workers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
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
	if pending := d.RawResponse.GetPendingActivities(); w.Open && len(pending) > 0 {
		w.Doing, w.Mark = doing(pending[0], time.Now())
	}
	return w, nil
}

// doing says what a pending activity is at, and gives a mark that is the same as long as nothing of it moves.
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
		parts = append(parts, "heartbeat "+now.Sub(t.AsTime()).Round(time.Second).String()+" ago")
	}
	if who := p.GetLastWorkerIdentity(); who != "" {
		parts = append(parts, "on "+clip(who, 60))
	}
	if f := p.GetLastFailure().GetMessage(); f != "" {
		parts = append(parts, "failed before: "+clip(f, 160))
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d %v %s", p.GetActivityType().GetName(), p.GetAttempt(), waits, beat)
	return strings.Join(parts, "; "), max(h.Sum32(), 1)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
