package workers

import (
	"strings"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The mark must change with every progress and with nothing else: a heartbeat that says the same is no progress.
func TestDoing_marksProgressOnly(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pending := func(change func(p *workflowpb.PendingActivityInfo)) *workflowpb.PendingActivityInfo {
		p := &workflowpb.PendingActivityInfo{
			ActivityType: &commonpb.ActivityType{Name: "GenerateRollouts"}, Attempt: 1, State: enumspb.PENDING_ACTIVITY_STATE_STARTED,
			LastHeartbeatTime: timestamppb.New(now), HeartbeatDetails: details(t, "10 tokens"),
		}
		change(p)
		return p
	}
	_, same := doing(pending(func(*workflowpb.PendingActivityInfo) {}), now)
	for name, c := range map[string]struct {
		change func(p *workflowpb.PendingActivityInfo)
		moved  bool
		says   string
	}{
		"a newer heartbeat": {func(p *workflowpb.PendingActivityInfo) {
			p.LastHeartbeatTime = timestamppb.New(now.Add(-5 * time.Second))
		}, false, "heartbeat 5s ago"},
		"a failure known":   {func(p *workflowpb.PendingActivityInfo) { p.LastFailure = &failurepb.Failure{Message: "no disk"} }, false, "failed before: no disk"},
		"more tokens":       {func(p *workflowpb.PendingActivityInfo) { p.HeartbeatDetails = details(t, "11 tokens") }, true, "said: 11 tokens"},
		"another attempt":   {func(p *workflowpb.PendingActivityInfo) { p.Attempt = 2 }, true, "attempt 2"},
		"it was put back":   {func(p *workflowpb.PendingActivityInfo) { p.State = enumspb.PENDING_ACTIVITY_STATE_SCHEDULED }, true, "waits for a worker"},
		"the next activity": {func(p *workflowpb.PendingActivityInfo) { p.ActivityType.Name = "JudgeRollouts" }, true, "JudgeRollouts"},
		"foreign details":   {func(p *workflowpb.PendingActivityInfo) { p.HeartbeatDetails = details(t, 7) }, true, "GenerateRollouts"},
	} {
		text, mark := doing(pending(c.change), now)
		if (mark != same) != c.moved || mark == 0 || !strings.Contains(text, c.says) {
			t.Errorf("%s: mark %d (before %d), text %q; want moved %v and %q", name, mark, same, text, c.moved, c.says)
		}
	}
}

func details(t *testing.T, v any) *commonpb.Payloads {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayloads(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
