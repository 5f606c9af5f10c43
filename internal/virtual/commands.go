//lint:file-ignore SA1019 the SDK finds its own signals and cancel requests by the field Control

package virtual

import (
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// apply carries out one command of a workflow task; by is the event that completed the task.
func (s *Server) apply(x *execution, by int64, c *commandpb.Command) {
	if x.closed {
		return
	}
	switch c.GetCommandType() {
	case enumspb.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
		s.schedule(x, by, c)
	case enumspb.COMMAND_TYPE_REQUEST_CANCEL_ACTIVITY_TASK:
		s.cancelActivity(x, by, c.GetRequestCancelActivityTaskCommandAttributes())
	case enumspb.COMMAND_TYPE_START_TIMER:
		s.startTimer(x, by, c)
	case enumspb.COMMAND_TYPE_CANCEL_TIMER:
		s.cancelTimer(x, by, c.GetCancelTimerCommandAttributes())
	case enumspb.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION:
		s.startChild(x, by, c)
	case enumspb.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION:
		s.signal(x, by, c.GetSignalExternalWorkflowExecutionCommandAttributes())
	case enumspb.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION:
		s.cancelExternal(x, by, c.GetRequestCancelExternalWorkflowExecutionCommandAttributes())
	case enumspb.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
		s.add(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
			Attributes: &historypb.HistoryEvent_UpsertWorkflowSearchAttributesEventAttributes{UpsertWorkflowSearchAttributesEventAttributes: &historypb.UpsertWorkflowSearchAttributesEventAttributes{
				WorkflowTaskCompletedEventId: by, SearchAttributes: c.GetUpsertWorkflowSearchAttributesCommandAttributes().GetSearchAttributes(),
			}},
		})
	case enumspb.COMMAND_TYPE_MODIFY_WORKFLOW_PROPERTIES:
		s.add(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
			Attributes: &historypb.HistoryEvent_WorkflowPropertiesModifiedEventAttributes{WorkflowPropertiesModifiedEventAttributes: &historypb.WorkflowPropertiesModifiedEventAttributes{
				WorkflowTaskCompletedEventId: by, UpsertedMemo: c.GetModifyWorkflowPropertiesCommandAttributes().GetUpsertedMemo(),
			}},
		})
	case enumspb.COMMAND_TYPE_RECORD_MARKER:
		m := c.GetRecordMarkerCommandAttributes()
		s.add(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_MARKER_RECORDED, UserMetadata: c.GetUserMetadata(),
			Attributes: &historypb.HistoryEvent_MarkerRecordedEventAttributes{MarkerRecordedEventAttributes: &historypb.MarkerRecordedEventAttributes{
				MarkerName: m.GetMarkerName(), Details: m.GetDetails(), WorkflowTaskCompletedEventId: by, Header: m.GetHeader(), Failure: m.GetFailure(),
			}},
		})
	default:
		if !s.end(x, by, c) {
			s.fail("%s %s sent the command %s, which this server does not know", x.kind, x.id, c.GetCommandType())
		}
	}
}

// end applies the commands that close an execution, and says whether c is one.
func (s *Server) end(x *execution, by int64, c *commandpb.Command) bool {
	e := &historypb.HistoryEvent{UserMetadata: c.GetUserMetadata()}
	out := Execution{}
	toParent := func(*historypb.HistoryEvent) {}
	switch c.GetCommandType() {
	case enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION:
		result := c.GetCompleteWorkflowExecutionCommandAttributes().GetResult()
		s.note("result of "+x.kind, result)
		e.EventType = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
		e.Attributes = &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
			Result: result, WorkflowTaskCompletedEventId: by,
		}}
		out.Outcome, out.Result = "completed", firstData(result)
		toParent = func(p *historypb.HistoryEvent) {
			p.EventType = enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED
			p.Attributes = &historypb.HistoryEvent_ChildWorkflowExecutionCompletedEventAttributes{ChildWorkflowExecutionCompletedEventAttributes: &historypb.ChildWorkflowExecutionCompletedEventAttributes{
				Result: result, Namespace: Namespace, WorkflowExecution: x.ref(), WorkflowType: &commonpb.WorkflowType{Name: x.kind},
				InitiatedEventId: x.initiated, StartedEventId: x.started,
			}}
		}
	case enumspb.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION:
		failure := c.GetFailWorkflowExecutionCommandAttributes().GetFailure()
		e.EventType = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED
		e.Attributes = &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
			Failure: failure, RetryState: enumspb.RETRY_STATE_RETRY_POLICY_NOT_SET, WorkflowTaskCompletedEventId: by,
		}}
		out.Outcome, out.Message = "failed", failure.GetMessage()
		for cause := failure.GetCause(); cause != nil; cause = cause.GetCause() {
			out.Message += ": " + cause.GetMessage()
		}
		toParent = func(p *historypb.HistoryEvent) {
			p.EventType = enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED
			p.Attributes = &historypb.HistoryEvent_ChildWorkflowExecutionFailedEventAttributes{ChildWorkflowExecutionFailedEventAttributes: &historypb.ChildWorkflowExecutionFailedEventAttributes{
				Failure: failure, Namespace: Namespace, WorkflowExecution: x.ref(), WorkflowType: &commonpb.WorkflowType{Name: x.kind},
				InitiatedEventId: x.initiated, StartedEventId: x.started, RetryState: enumspb.RETRY_STATE_RETRY_POLICY_NOT_SET,
			}}
		}
	case enumspb.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION:
		e.EventType = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED
		e.Attributes = &historypb.HistoryEvent_WorkflowExecutionCanceledEventAttributes{WorkflowExecutionCanceledEventAttributes: &historypb.WorkflowExecutionCanceledEventAttributes{
			WorkflowTaskCompletedEventId: by,
		}}
		out.Outcome = "canceled"
		toParent = func(p *historypb.HistoryEvent) {
			p.EventType = enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED
			p.Attributes = &historypb.HistoryEvent_ChildWorkflowExecutionCanceledEventAttributes{ChildWorkflowExecutionCanceledEventAttributes: &historypb.ChildWorkflowExecutionCanceledEventAttributes{
				Namespace: Namespace, WorkflowExecution: x.ref(), WorkflowType: &commonpb.WorkflowType{Name: x.kind},
				InitiatedEventId: x.initiated, StartedEventId: x.started,
			}}
		}
	case enumspb.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION:
		s.continueAsNew(x, by, c.GetContinueAsNewWorkflowExecutionCommandAttributes())
		return true
	default:
		return false
	}
	s.add(x, e)
	s.close(x, out)
	if parent := x.parent; parent != nil {
		s.After(s.o.Hop, func() {
			p := &historypb.HistoryEvent{}
			toParent(p)
			s.tell(parent, p)
		})
	}
	return true
}

func (s *Server) continueAsNew(x *execution, by int64, c *commandpb.ContinueAsNewWorkflowExecutionCommandAttributes) {
	s.note("input of "+x.kind, c.GetInput())
	s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{
			NewExecutionRunId: x.run, WorkflowType: c.GetWorkflowType(), TaskQueue: c.GetTaskQueue(), Input: c.GetInput(),
			WorkflowRunTimeout: c.GetWorkflowRunTimeout(), WorkflowTaskTimeout: c.GetWorkflowTaskTimeout(),
			WorkflowTaskCompletedEventId: by, Initiator: enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW, Header: c.GetHeader(),
			Memo: c.GetMemo(), SearchAttributes: c.GetSearchAttributes(),
		}},
	})
	s.close(x, Execution{Outcome: "continued", Next: firstData(c.GetInput())})
	s.begin(start{
		id: x.id, kind: c.GetWorkflowType().GetName(), queue: c.GetTaskQueue().GetName(), input: c.GetInput(),
		attrs: c.GetSearchAttributes(), parent: x.parent, initiated: x.initiated, previous: x,
	})
}

func (s *Server) startTimer(x *execution, by int64, c *commandpb.Command) {
	q := c.GetStartTimerCommandAttributes()
	t := &timer{}
	t.started = s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_TIMER_STARTED, UserMetadata: c.GetUserMetadata(),
		Attributes: &historypb.HistoryEvent_TimerStartedEventAttributes{TimerStartedEventAttributes: &historypb.TimerStartedEventAttributes{
			TimerId: q.GetTimerId(), StartToFireTimeout: q.GetStartToFireTimeout(), WorkflowTaskCompletedEventId: by,
		}},
	})
	x.timers[q.GetTimerId()] = t
	t.event = s.after(q.GetStartToFireTimeout().AsDuration(), func() {
		delete(x.timers, q.GetTimerId())
		s.tell(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_TIMER_FIRED,
			Attributes: &historypb.HistoryEvent_TimerFiredEventAttributes{TimerFiredEventAttributes: &historypb.TimerFiredEventAttributes{
				TimerId: q.GetTimerId(), StartedEventId: t.started,
			}},
		})
	})
}

func (s *Server) cancelTimer(x *execution, by int64, q *commandpb.CancelTimerCommandAttributes) {
	t := x.timers[q.GetTimerId()]
	if t == nil {
		s.fail("%s %s cancels a timer that it has not", x.kind, x.id)
		return
	}
	s.stop(t.event)
	delete(x.timers, q.GetTimerId())
	s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_TIMER_CANCELED,
		Attributes: &historypb.HistoryEvent_TimerCanceledEventAttributes{TimerCanceledEventAttributes: &historypb.TimerCanceledEventAttributes{
			TimerId: q.GetTimerId(), StartedEventId: t.started, WorkflowTaskCompletedEventId: by, Identity: "virtual",
		}},
	})
}

func (s *Server) startChild(x *execution, by int64, c *commandpb.Command) {
	q := c.GetStartChildWorkflowExecutionCommandAttributes()
	kind := q.GetWorkflowType().GetName()
	s.note("input of "+kind, q.GetInput())
	initiated := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED, UserMetadata: c.GetUserMetadata(),
		Attributes: &historypb.HistoryEvent_StartChildWorkflowExecutionInitiatedEventAttributes{StartChildWorkflowExecutionInitiatedEventAttributes: &historypb.StartChildWorkflowExecutionInitiatedEventAttributes{
			Namespace: Namespace, WorkflowId: q.GetWorkflowId(), WorkflowType: q.GetWorkflowType(), TaskQueue: q.GetTaskQueue(), Input: q.GetInput(),
			WorkflowExecutionTimeout: q.GetWorkflowExecutionTimeout(), WorkflowRunTimeout: q.GetWorkflowRunTimeout(),
			WorkflowTaskTimeout: durationpb.New(q.GetWorkflowTaskTimeout().AsDuration()), ParentClosePolicy: q.GetParentClosePolicy(),
			WorkflowTaskCompletedEventId: by, WorkflowIdReusePolicy: q.GetWorkflowIdReusePolicy(), RetryPolicy: q.GetRetryPolicy(),
			Header: q.GetHeader(), Memo: q.GetMemo(), SearchAttributes: q.GetSearchAttributes(),
		}},
	})
	s.After(s.o.Hop, func() {
		if s.open[q.GetWorkflowId()] != nil {
			s.tell(x, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED,
				Attributes: &historypb.HistoryEvent_StartChildWorkflowExecutionFailedEventAttributes{StartChildWorkflowExecutionFailedEventAttributes: &historypb.StartChildWorkflowExecutionFailedEventAttributes{
					Namespace: Namespace, WorkflowId: q.GetWorkflowId(), WorkflowType: q.GetWorkflowType(),
					Cause: enumspb.START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS, InitiatedEventId: initiated, WorkflowTaskCompletedEventId: by,
				}},
			})
			return
		}
		child := s.begin(start{
			id: q.GetWorkflowId(), kind: kind, queue: q.GetTaskQueue().GetName(), input: q.GetInput(), attrs: q.GetSearchAttributes(),
			parent: x, initiated: initiated,
		})
		child.started = s.tell(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED,
			Attributes: &historypb.HistoryEvent_ChildWorkflowExecutionStartedEventAttributes{ChildWorkflowExecutionStartedEventAttributes: &historypb.ChildWorkflowExecutionStartedEventAttributes{
				Namespace: Namespace, InitiatedEventId: initiated, WorkflowExecution: child.ref(), WorkflowType: q.GetWorkflowType(),
			}},
		})
	})
}

func (s *Server) signal(x *execution, by int64, q *commandpb.SignalExternalWorkflowExecutionCommandAttributes) {
	s.note("signal "+q.GetSignalName(), q.GetInput())
	initiated := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
		Attributes: &historypb.HistoryEvent_SignalExternalWorkflowExecutionInitiatedEventAttributes{SignalExternalWorkflowExecutionInitiatedEventAttributes: &historypb.SignalExternalWorkflowExecutionInitiatedEventAttributes{
			WorkflowTaskCompletedEventId: by, Namespace: Namespace, WorkflowExecution: q.GetExecution(), SignalName: q.GetSignalName(),
			Input: q.GetInput(), Control: q.GetControl(), ChildWorkflowOnly: q.GetChildWorkflowOnly(), Header: q.GetHeader(),
		}},
	})
	s.After(s.o.Hop, func() {
		target := s.open[q.GetExecution().GetWorkflowId()]
		if target == nil {
			s.tell(x, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED,
				Attributes: &historypb.HistoryEvent_SignalExternalWorkflowExecutionFailedEventAttributes{SignalExternalWorkflowExecutionFailedEventAttributes: &historypb.SignalExternalWorkflowExecutionFailedEventAttributes{
					Cause:                        enumspb.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND,
					WorkflowTaskCompletedEventId: by, Namespace: Namespace, WorkflowExecution: q.GetExecution(), InitiatedEventId: initiated, Control: q.GetControl(),
				}},
			})
			return
		}
		s.tell(target, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
				SignalName: q.GetSignalName(), Input: q.GetInput(), Identity: "virtual", Header: q.GetHeader(), ExternalWorkflowExecution: x.ref(),
			}},
		})
		s.tell(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED,
			Attributes: &historypb.HistoryEvent_ExternalWorkflowExecutionSignaledEventAttributes{ExternalWorkflowExecutionSignaledEventAttributes: &historypb.ExternalWorkflowExecutionSignaledEventAttributes{
				InitiatedEventId: initiated, Namespace: Namespace, WorkflowExecution: q.GetExecution(), Control: q.GetControl(),
			}},
		})
	})
}

func (s *Server) cancelExternal(x *execution, by int64, q *commandpb.RequestCancelExternalWorkflowExecutionCommandAttributes) {
	ref := &commonpb.WorkflowExecution{WorkflowId: q.GetWorkflowId(), RunId: q.GetRunId()}
	initiated := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
		Attributes: &historypb.HistoryEvent_RequestCancelExternalWorkflowExecutionInitiatedEventAttributes{RequestCancelExternalWorkflowExecutionInitiatedEventAttributes: &historypb.RequestCancelExternalWorkflowExecutionInitiatedEventAttributes{
			WorkflowTaskCompletedEventId: by, Namespace: Namespace, WorkflowExecution: ref, Control: q.GetControl(),
			ChildWorkflowOnly: q.GetChildWorkflowOnly(), Reason: q.GetReason(),
		}},
	})
	s.After(s.o.Hop, func() {
		target := s.open[q.GetWorkflowId()]
		if target == nil {
			s.tell(x, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED,
				Attributes: &historypb.HistoryEvent_RequestCancelExternalWorkflowExecutionFailedEventAttributes{RequestCancelExternalWorkflowExecutionFailedEventAttributes: &historypb.RequestCancelExternalWorkflowExecutionFailedEventAttributes{
					Cause:                        enumspb.CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND,
					WorkflowTaskCompletedEventId: by, Namespace: Namespace, WorkflowExecution: ref, InitiatedEventId: initiated, Control: q.GetControl(),
				}},
			})
			return
		}
		if !target.cancelled {
			target.cancelled = true
			s.tell(target, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionCancelRequestedEventAttributes{WorkflowExecutionCancelRequestedEventAttributes: &historypb.WorkflowExecutionCancelRequestedEventAttributes{
					Cause: q.GetReason(), ExternalInitiatedEventId: initiated, ExternalWorkflowExecution: x.ref(), Identity: "virtual",
				}},
			})
		}
		s.tell(x, &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
			Attributes: &historypb.HistoryEvent_ExternalWorkflowExecutionCancelRequestedEventAttributes{ExternalWorkflowExecutionCancelRequestedEventAttributes: &historypb.ExternalWorkflowExecutionCancelRequestedEventAttributes{
				InitiatedEventId: initiated, Namespace: Namespace, WorkflowExecution: ref,
			}},
		})
	})
}
