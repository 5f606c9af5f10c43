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

	"github.com/steadyrl/steady/internal/contract"
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
		"another attempt":   {func(p *workflowpb.PendingActivityInfo) { p.Attempt = 2 }, false, "attempt 2"},
		"it was put back":   {func(p *workflowpb.PendingActivityInfo) { p.State = enumspb.PENDING_ACTIVITY_STATE_SCHEDULED }, false, "waits for a worker"},
		"the next activity": {func(p *workflowpb.PendingActivityInfo) { p.ActivityType.Name = "JudgeRollouts" }, true, "JudgeRollouts"},
		"foreign details":   {func(p *workflowpb.PendingActivityInfo) { p.HeartbeatDetails = details(t, 7) }, true, "GenerateRollouts"},
	} {
		text, mark := doing(pending(c.change), now)
		if (mark != same) != c.moved || mark == 0 || !strings.Contains(text, c.says) {
			t.Errorf("%s: mark %d (before %d), text %q; want moved %v and %q", name, mark, same, text, c.moved, c.says)
		}
	}
}

// A workflow with several activities stands still when none of them moves, in whatever order the server names them.
func TestPending_movesIfAnyMoves(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := func(id, name, said string) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{
			ActivityId: id, ActivityType: &commonpb.ActivityType{Name: name}, Attempt: 1, HeartbeatDetails: details(t, said),
		}
	}
	a, b, ask := one("9", "GenerateRollouts", "10 tokens"), one("10", "JudgeRollouts", "2 programs"), one("5", contract.InspectActivity.Name, "")
	text, mark := pending([]*workflowpb.PendingActivityInfo{a, b}, now)
	if mark == 0 || !strings.HasPrefix(text, "GenerateRollouts") || !strings.HasSuffix(text, "and 1 more") {
		t.Errorf("mark %d, text %q; want the oldest activity", mark, text)
	}
	if _, m := pending([]*workflowpb.PendingActivityInfo{b, ask, a}, now); m != mark {
		t.Error("another order, or the question itself, is progress")
	}
	for name, list := range map[string][]*workflowpb.PendingActivityInfo{
		"one moved":                  {a, one("10", "JudgeRollouts", "3 programs")},
		"one ended":                  {b},
		"one is new":                 {a, b, one("11", "JudgeRollouts", "2 programs")},
		"tried anew by the workflow": {a, one("12", "JudgeRollouts", "2 programs")},
	} {
		if _, m := pending(list, now); m == mark || m == 0 {
			t.Errorf("%s: the mark is still %d", name, m)
		}
	}
	if text, m := pending([]*workflowpb.PendingActivityInfo{ask}, now); m != 0 || text != "" {
		t.Errorf("only the question is pending: mark %d, %q", m, text)
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
