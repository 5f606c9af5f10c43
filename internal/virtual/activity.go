package virtual

import (
	"slices"
	"time"

	commandpb "go.temporal.io/api/command/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
)

// Attempt is one execution of an activity, from its task queue to its end. A world calls Take once, and after it at most one of
// Complete, Fail and Lost. A call that comes after the server has given the attempt up changes nothing.
type Attempt struct {
	Type, Queue string
	Workflow    string // id of the workflow
	Number      int    // 1 for the first
	Input       []byte // as JSON

	// Cancelled is called, if it is set, when the workflow has asked for the end of the attempt; the attempt is over then.
	Cancelled func()
	// TimedOut is called, if it is set, when the server has given a running attempt up.
	TimedOut func()

	task  *activityTask
	open  bool
	taken bool
	// bounds are the time-outs that run.
	bounds []*event
}

// over ends the attempt and its time-outs.
func (a *Attempt) over() {
	a.open = false
	for _, e := range a.bounds {
		a.task.s.stop(e)
	}
	a.bounds = nil
}

// within gives the attempt up after d, if it is open then.
func (a *Attempt) within(d time.Duration, kind enumspb.TimeoutType) {
	a.bounds = append(a.bounds, a.task.s.after(d, func() {
		if a.open && !(kind == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && a.taken) {
			a.task.timedOut(a, kind)
		}
	}))
}

// activityTask is one activity over all its attempts.
type activityTask struct {
	s         *Server
	x         *execution
	q         *commandpb.ScheduleActivityTaskCommandAttributes
	scheduled int64
	at        time.Duration // when it was scheduled
	cancel    int64         // event of the cancel request
	last      *failurepb.Failure
}

func (s *Server) schedule(x *execution, by int64, c *commandpb.Command) {
	q := c.GetScheduleActivityTaskCommandAttributes()
	s.note("request of "+q.GetActivityType().GetName(), q.GetInput())
	t := &activityTask{s: s, x: x, q: q, at: s.now}
	t.scheduled = s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, UserMetadata: c.GetUserMetadata(),
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityId: q.GetActivityId(), ActivityType: q.GetActivityType(), TaskQueue: q.GetTaskQueue(), Header: q.GetHeader(), Input: q.GetInput(),
			ScheduleToCloseTimeout: q.GetScheduleToCloseTimeout(), ScheduleToStartTimeout: q.GetScheduleToStartTimeout(),
			StartToCloseTimeout: q.GetStartToCloseTimeout(), HeartbeatTimeout: q.GetHeartbeatTimeout(),
			WorkflowTaskCompletedEventId: by, RetryPolicy: q.GetRetryPolicy(),
		}},
	})
	t.attempt(1)
}

// attempt puts the activity on its queue.
func (t *activityTask) attempt(number int) {
	a := &Attempt{
		Type: t.q.GetActivityType().GetName(), Queue: t.q.GetTaskQueue().GetName(), Workflow: t.x.id, Number: number,
		Input: firstData(t.q.GetInput()), task: t, open: true,
	}
	t.x.activities[t.scheduled] = a
	if wait := t.q.GetScheduleToStartTimeout().AsDuration(); wait > 0 {
		a.within(wait, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START)
	}
	if all := t.q.GetScheduleToCloseTimeout().AsDuration(); all > 0 {
		a.within(t.at+all-t.s.now, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE)
	}
	t.s.After(t.s.o.Hop, func() {
		if a.open {
			t.s.o.World.Begin(a)
		}
	})
}

// Open says whether the attempt still counts.
func (a *Attempt) Open() bool { return a.open }

// Take says that a worker has begun.
func (a *Attempt) Take() {
	if !a.open || a.taken {
		return
	}
	a.taken = true
	if run := a.task.q.GetStartToCloseTimeout().AsDuration(); run > 0 {
		a.within(run, enumspb.TIMEOUT_TYPE_START_TO_CLOSE)
	}
}

// Complete ends the activity with a result, given as JSON.
func (a *Attempt) Complete(result []byte) {
	if !a.open {
		return
	}
	t := a.task
	started := t.settle(a)
	p := jsonPayloads(result)
	t.s.note("result of "+a.Type, p)
	t.s.tell(t.x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
			Result: p, ScheduledEventId: t.scheduled, StartedEventId: started, Identity: "virtual",
		}},
	})
}

// Fail ends the attempt with an application error. It is tried again as the retry policy of the activity says, unless final.
func (a *Attempt) Fail(kind, message string, final bool) {
	if !a.open {
		return
	}
	t := a.task
	f := &failurepb.Failure{
		Message: message, Source: "GoSDK",
		FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind, NonRetryable: final}},
	}
	if !final && !slices.Contains(t.q.GetRetryPolicy().GetNonRetryableErrorTypes(), kind) && t.again(a, f) {
		return
	}
	started := t.settle(a)
	t.s.tell(t.x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
		Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{
			Failure: f, ScheduledEventId: t.scheduled, StartedEventId: started, Identity: "virtual", RetryState: enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE,
		}},
	})
}

// Lost says that the worker has died: the server notices when the heartbeat is overdue.
func (a *Attempt) Lost() {
	if wait := a.task.q.GetHeartbeatTimeout().AsDuration(); wait > 0 && a.open {
		a.within(wait, enumspb.TIMEOUT_TYPE_HEARTBEAT)
	}
}

// timedOut ends an attempt that the server waits for no longer.
func (t *activityTask) timedOut(a *Attempt, kind enumspb.TimeoutType) {
	f := &failurepb.Failure{
		Message: "activity " + kind.String() + " timeout", Source: "Server",
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind}},
	}
	if a.TimedOut != nil {
		a.TimedOut()
	}
	retried := kind == enumspb.TIMEOUT_TYPE_START_TO_CLOSE || kind == enumspb.TIMEOUT_TYPE_HEARTBEAT
	if retried && t.again(a, f) {
		return
	}
	started := int64(0)
	if a.taken {
		started = t.settle(a)
	} else {
		t.forget(a)
	}
	t.s.tell(t.x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
		Attributes: &historypb.HistoryEvent_ActivityTaskTimedOutEventAttributes{ActivityTaskTimedOutEventAttributes: &historypb.ActivityTaskTimedOutEventAttributes{
			Failure: f, ScheduledEventId: t.scheduled, StartedEventId: started, RetryState: enumspb.RETRY_STATE_TIMEOUT,
		}},
	})
}

// again schedules the next attempt, if the policy has one.
func (t *activityTask) again(a *Attempt, f *failurepb.Failure) bool {
	p := t.q.GetRetryPolicy()
	if p == nil || t.cancel != 0 || p.GetMaximumAttempts() > 0 && a.Number >= int(p.GetMaximumAttempts()) {
		return false
	}
	wait := p.GetInitialInterval().AsDuration().Seconds()
	for range a.Number - 1 {
		wait *= p.GetBackoffCoefficient()
		if most := p.GetMaximumInterval().AsDuration().Seconds(); most > 0 && wait > most {
			wait = most
			break
		}
	}
	pause := time.Duration(wait * float64(time.Second))
	if all := t.q.GetScheduleToCloseTimeout().AsDuration(); all > 0 && t.s.now+pause >= t.at+all {
		return false
	}
	a.over()
	t.last = f
	waiting := &Attempt{open: true, task: t} // what a cancel meets in the meantime
	t.x.activities[t.scheduled] = waiting
	t.s.After(pause, func() {
		if waiting.open && !t.x.closed {
			t.attempt(a.Number + 1)
		}
	})
	return true
}

// settle ends the activity and writes that it was started, which a server does only now.
func (t *activityTask) settle(a *Attempt) int64 {
	t.forget(a)
	return t.s.add(t.x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED,
		Attributes: &historypb.HistoryEvent_ActivityTaskStartedEventAttributes{ActivityTaskStartedEventAttributes: &historypb.ActivityTaskStartedEventAttributes{
			ScheduledEventId: t.scheduled, Identity: "virtual", RequestId: t.x.run, Attempt: int32(a.Number), LastFailure: t.last, //nolint:gosec // a count of attempts
		}},
	})
}

func (t *activityTask) forget(a *Attempt) {
	a.over()
	delete(t.x.activities, t.scheduled)
}

// cancelActivity asks an activity to end. A running one hears of it with its next heartbeat, a waiting one ends at once.
func (s *Server) cancelActivity(x *execution, by int64, q *commandpb.RequestCancelActivityTaskCommandAttributes) {
	id := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCancelRequestedEventAttributes{ActivityTaskCancelRequestedEventAttributes: &historypb.ActivityTaskCancelRequestedEventAttributes{
			ScheduledEventId: q.GetScheduledEventId(), WorkflowTaskCompletedEventId: by,
		}},
	})
	a := x.activities[q.GetScheduledEventId()]
	if a == nil {
		return
	}
	t := a.task
	t.cancel = id
	delay := time.Duration(0)
	if a.taken {
		delay = t.q.GetHeartbeatTimeout().AsDuration() / 3
	}
	s.After(delay, func() {
		if !a.open {
			return
		}
		started := int64(0)
		if a.taken {
			started = t.settle(a)
		} else {
			t.forget(a)
		}
		if a.Cancelled != nil {
			a.Cancelled()
		}
		s.tell(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
			Attributes: &historypb.HistoryEvent_ActivityTaskCanceledEventAttributes{ActivityTaskCanceledEventAttributes: &historypb.ActivityTaskCanceledEventAttributes{
				LatestCancelRequestedEventId: id, ScheduledEventId: t.scheduled, StartedEventId: started, Identity: "virtual",
			}},
		})
	})
}
