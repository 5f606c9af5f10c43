package virtual

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steadyrl/steady/internal/fault"
)

// Namespace is the only one that the server has.
const Namespace = "virtual"

// Above these a real server suggests to a workflow that it continue as new; its defaults.
const (
	suggestEvents = 4096
	suggestBytes  = 4 << 20
)

// answerWithin is how long a worker may take for one workflow task, in real time. A task takes about a millisecond.
const answerWithin = 5 * time.Minute

// World plays the activities. Its methods are called by the loop of the server, one at a time.
type World interface {
	// Begin is told of an attempt that has reached its task queue. The world calls its Take, then one of the ends.
	Begin(*Attempt)
	// Closed is told of an execution that has ended; one that continued as new has ended too.
	Closed(Execution)
}

// Options of a server.
type Options struct {
	Start time.Time // of the virtual clock
	// Hop is how long every message takes: a task to its worker, a signal, the start of a child.
	Hop   time.Duration
	World World
}

// Execution describes one that has ended.
type Execution struct {
	ID, Type string
	Outcome  string // completed, failed, canceled, continued
	Events   int
	Bytes    int    // of the events, as protocol buffers
	Message  string // of the failure
	Next     []byte // input of the run that follows, as JSON, if the outcome is continued
	Result   []byte // as JSON, if the outcome is completed
	History  []*historypb.HistoryEvent
}

// Server is a Temporal server in virtual time. Its methods may be called from Run's goroutine only (a World's methods and
// functions given to After run there), except for DialOption and what is done with it.
type Server struct {
	o       Options
	now     time.Duration
	seq     uint64
	queue   events
	open    map[string]*execution // by workflow id
	number  uint32                // of the server in this process
	runs    int
	largest map[string]int
	failed  error

	tasks   chan *workflowservice.PollWorkflowTaskQueueResponse
	answers chan answer
	stopped chan struct{}

	tasksDone, eventsDone int
}

// answer is what a worker made of a workflow task.
type answer struct {
	done   *workflowservice.RespondWorkflowTaskCompletedRequest
	failed *workflowservice.RespondWorkflowTaskFailedRequest
}

// servers counts the servers of the process: the SDK has one cache for all workers, by run id.
var servers atomic.Uint32

// New makes a server. It does nothing before Run.
func New(o Options) *Server {
	return &Server{
		o: o, number: servers.Add(1), open: map[string]*execution{}, largest: map[string]int{},
		tasks: make(chan *workflowservice.PollWorkflowTaskQueueResponse), answers: make(chan answer), stopped: make(chan struct{}),
	}
}

// Now returns the virtual time since the start.
func (s *Server) Now() time.Duration { return s.now }

// Largest returns the size in bytes of the largest message of each name that a history holds.
func (s *Server) Largest() map[string]int { return s.largest }

// Counts returns how many workflow tasks were answered and how many events written.
func (s *Server) Counts() (tasks, events int) { return s.tasksDone, s.eventsDone }

// After calls f when d has passed; functions of one instant run in the order of their calls.
func (s *Server) After(d time.Duration, f func()) { s.after(d, f) }

func (s *Server) after(d time.Duration, f func()) *event {
	s.seq++
	e := &event{at: s.now + max(d, 0), seq: s.seq, f: f}
	heap.Push(&s.queue, e)
	return e
}

// stop takes an event off the queue, if it is there still.
func (s *Server) stop(e *event) {
	if e.place >= 0 {
		heap.Remove(&s.queue, e.place)
	}
}

// Start starts a workflow with one input, given as JSON. It begins to run in Run.
func (s *Server) Start(workflowType, id, queue string, input []byte) {
	s.begin(start{
		id: id, kind: workflowType, queue: queue, input: jsonPayloads(input),
	})
}

// Run handles events until none is left, in order of time. It ends early with the error of ctx, and with one of kind Internal
// if workflow code panics or an execution waits for what never comes.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.stopped)
	for len(s.open) > 0 && s.queue.Len() > 0 && s.failed == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, ok := heap.Pop(&s.queue).(*event)
		if !ok {
			break // the heap holds nothing else
		}
		s.now = e.at
		if e.ctx != nil {
			e.ctx(ctx)
			continue
		}
		e.f()
	}
	if s.failed != nil {
		return s.failed
	}
	return s.stuck()
}

// stuck is nil if no execution is open, else an error that says what each of the first ones waits for.
func (s *Server) stuck() error {
	const shown = 4
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		if len(lines) == shown {
			break
		}
		x := s.open[id]
		line := fmt.Sprintf("%s %s after %d events, the last %s", x.kind, id, len(x.events), x.events[len(x.events)-1].GetEventType())
		for _, n := range slices.Sorted(maps.Keys(x.activities)) {
			a := x.activities[n]
			line += fmt.Sprintf(", %s attempt %d (open %v, taken %v)", a.task.q.GetActivityType().GetName(), a.Number, a.open, a.taken)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil
	}
	return fault.New(fault.Internal, "virtual.Run", "%d executions wait for what never comes: %s", len(s.open), strings.Join(lines, "; "))
}

// Open says whether a workflow of this id is open.
func (s *Server) Open(id string) bool { return s.open[id] != nil }

// Fail makes Run end with err.
func (s *Server) Fail(err error) {
	if s.failed == nil {
		s.failed = err
	}
}

func (s *Server) fail(format string, args ...any) {
	s.Fail(fault.New(fault.Internal, "virtual.Run", format, args...))
}

func (s *Server) time() *timestamppb.Timestamp { return timestamppb.New(s.o.Start.Add(s.now)) }

// note remembers the size of a message.
func (s *Server) note(name string, p *commonpb.Payloads) {
	n := 0
	for _, one := range p.GetPayloads() {
		n += len(one.GetData())
	}
	if n > s.largest[name] {
		s.largest[name] = n
	}
}

// execution is one run of a workflow.
type execution struct {
	id, run, first string
	kind, queue    string
	parent         *execution // nil for a root, and it may have ended
	initiated      int64      // event of the parent that asked for it
	started        int64      // event of the parent that noted its start
	root           *commonpb.WorkflowExecution

	events      []*historypb.HistoryEvent
	bytes       int
	scheduled   int64 // event of the workflow task that waits, 0 for none
	prevStarted int64
	closed      bool
	cancelled   bool // a cancel was requested

	activities map[int64]*Attempt
	timers     map[string]*timer
}

type timer struct {
	started int64
	event   *event
}

// ref names x to others.
func (x *execution) ref() *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: x.id, RunId: x.run}
}

// start is what an execution begins with.
type start struct {
	id, kind, queue string
	input           *commonpb.Payloads
	attrs           *commonpb.SearchAttributes
	parent          *execution
	initiated       int64
	previous        *execution // the run that continued as new
}

func (s *Server) begin(b start) *execution {
	s.runs++
	x := &execution{
		id: b.id, run: fmt.Sprintf("%08x-0000-4000-8000-%012x", s.number, s.runs), kind: b.kind, queue: b.queue,
		parent: b.parent, initiated: b.initiated, activities: map[int64]*Attempt{}, timers: map[string]*timer{},
	}
	x.first = x.run
	a := &historypb.WorkflowExecutionStartedEventAttributes{
		WorkflowType: &commonpb.WorkflowType{Name: b.kind}, TaskQueue: normalQueue(b.queue), Input: b.input,
		WorkflowTaskTimeout: durationpb.New(10 * time.Second), OriginalExecutionRunId: x.run, Attempt: 1,
		SearchAttributes: b.attrs, WorkflowId: b.id, WorkflowExecutionTimeout: durationpb.New(0), WorkflowRunTimeout: durationpb.New(0),
	}
	switch {
	case b.previous != nil:
		x.first, x.root, x.started = b.previous.first, b.previous.root, b.previous.started
		a.ContinuedExecutionRunId, a.Initiator = b.previous.run, enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW
	case b.parent != nil:
		x.root = b.parent.root
	default:
		x.root = x.ref()
	}
	if b.parent != nil {
		a.ParentWorkflowNamespace, a.ParentWorkflowExecution, a.ParentInitiatedEventId = Namespace, b.parent.ref(), b.initiated
	}
	a.FirstExecutionRunId, a.RootWorkflowExecution = x.first, x.root
	s.open[x.id] = x
	s.add(x, &historypb.HistoryEvent{
		EventType:  enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{WorkflowExecutionStartedEventAttributes: a},
	})
	s.wake(x)
	return x
}

// add appends an event and returns its number.
func (s *Server) add(x *execution, e *historypb.HistoryEvent) int64 {
	e.EventId = int64(len(x.events) + 1)
	e.EventTime = s.time()
	e.TaskId = int64(s.eventsDone + 1_000_000) // a size such as that of a real one
	x.events = append(x.events, e)
	x.bytes += proto.Size(e)
	s.eventsDone++
	return e.EventId
}

// wake schedules a workflow task, unless one waits already.
func (s *Server) wake(x *execution) {
	if x.closed || x.scheduled != 0 {
		return
	}
	x.scheduled = s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{
			TaskQueue: normalQueue(x.queue), StartToCloseTimeout: durationpb.New(10 * time.Second), Attempt: 1,
		}},
	})
	at := s.time()
	s.seq++
	heap.Push(&s.queue, &event{at: s.now + s.o.Hop, seq: s.seq, ctx: func(ctx context.Context) { s.task(ctx, x, at) }})
}

// tell adds an event and wakes x; to an execution that has ended it says nothing.
func (s *Server) tell(x *execution, e *historypb.HistoryEvent) int64 {
	if x.closed {
		return 0
	}
	id := s.add(x, e)
	s.wake(x)
	return id
}

// task hands a workflow task to a worker and applies its answer.
func (s *Server) task(ctx context.Context, x *execution, scheduledAt *timestamppb.Timestamp) {
	if x.closed {
		return
	}
	started := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowTaskStartedEventAttributes{WorkflowTaskStartedEventAttributes: &historypb.WorkflowTaskStartedEventAttributes{
			ScheduledEventId: x.scheduled, Identity: "virtual", RequestId: x.run,
			SuggestContinueAsNew: len(x.events) >= suggestEvents || x.bytes >= suggestBytes, HistorySizeBytes: int64(x.bytes),
		}},
	})
	t := &workflowservice.PollWorkflowTaskQueueResponse{
		TaskToken: []byte(x.run), WorkflowExecution: x.ref(), WorkflowType: &commonpb.WorkflowType{Name: x.kind},
		PreviousStartedEventId: x.prevStarted, StartedEventId: started, Attempt: 1,
		History:       &historypb.History{Events: x.events[x.prevStarted:]},
		ScheduledTime: scheduledAt, StartedTime: s.time(), WorkflowExecutionTaskQueue: normalQueue(x.queue),
	}
	select {
	case s.tasks <- t:
	case <-ctx.Done():
		return
	}
	select {
	case a := <-s.answers:
		if a.failed != nil {
			s.fail("the workflow task of %s %s failed: %s", x.kind, x.id, a.failed.GetFailure().GetMessage())
			return
		}
		scheduled := x.scheduled
		x.scheduled, x.prevStarted = 0, started
		s.tasksDone++
		s.completed(x, scheduled, started, a.done)
	case <-ctx.Done():
	case <-time.After(answerWithin):
		s.fail("the worker did not answer a workflow task of %s %s", x.kind, x.id)
	}
}

func (s *Server) completed(x *execution, scheduled, started int64, q *workflowservice.RespondWorkflowTaskCompletedRequest) {
	id := s.add(x, &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{
			ScheduledEventId: scheduled, StartedEventId: started, Identity: q.GetIdentity(), SdkMetadata: q.GetSdkMetadata(),
			MeteringMetadata: q.GetMeteringMetadata(),
		}},
	})
	if len(q.GetMessages()) > 0 {
		s.fail("%s %s sent a message of an update", x.kind, x.id)
		return
	}
	for _, c := range q.GetCommands() {
		s.apply(x, id, c)
	}
	if q.GetForceCreateNewWorkflowTask() {
		s.wake(x)
	}
}

func (s *Server) close(x *execution, end Execution) {
	x.closed = true
	for _, a := range x.activities {
		a.over()
	}
	for _, t := range x.timers {
		s.stop(t.event)
	}
	if s.open[x.id] == x {
		delete(s.open, x.id)
	}
	end.ID, end.Type, end.Events, end.Bytes, end.History = x.id, x.kind, len(x.events), x.bytes, x.events
	x.events = nil
	s.o.World.Closed(end)
}

func normalQueue(name string) *taskqueuepb.TaskQueue {
	return &taskqueuepb.TaskQueue{Name: name, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}
}

func jsonPayloads(data []byte) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{{
		Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: data,
	}}}
}

func firstData(p *commonpb.Payloads) []byte {
	if all := p.GetPayloads(); len(all) > 0 {
		return all[0].GetData()
	}
	return nil
}

// event is a function at an instant.
type event struct {
	at    time.Duration
	seq   uint64
	f     func()
	ctx   func(context.Context) // instead of f
	place int                   // in the heap, -1 outside
}

// events is a heap, ordered by time and then by age.
type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

func (e events) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

// Push is heap's.
func (e *events) Push(v any) {
	if one, ok := v.(*event); ok {
		one.place = len(*e)
		*e = append(*e, one)
	}
}

// Pop is heap's.
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	last.place = -1
	return last
}
