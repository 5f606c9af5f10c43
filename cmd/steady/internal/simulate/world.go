package simulate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/rng"
	"github.com/steadyrl/steady/internal/virtual"
)

// finalAttempt is from where on an infrastructure fault of an activity is final, as in package activities.
const finalAttempt = 5

// unit is a group, or a chunk of the dev set, in the store of the model.
type unit struct {
	group     bool
	responses []*response
	longest   int
	judged    time.Duration
}

// world plays the activities and keeps the account.
type world struct {
	o     *Options
	s     *virtual.Server
	pool  *pool
	units map[string]*unit

	trainer trainer
	lastEnd time.Duration // of the newest update
	held    time.Duration // up to when a checkpoint or a validation held back the update to come
	broken  bool          // the update to come was tried before
	ready   map[int]time.Duration
	began   time.Duration // of the loop
	ended   time.Duration
	usage   usage // of the pool while the loop was open
	err     error
	acct    account
}

// trainer is the state of the acquired trainer.
type trainer struct {
	epoch      int
	restored   bool // the state of the epoch is in memory
	checkpoint int  // newest step that has one
	lost       int  // epoch whose process has died
	busy       time.Duration
	replayed   time.Duration
}

func (t trainer) dead() bool { return t.lost == t.epoch && t.epoch > 0 }

func newWorld(o *Options) *world {
	w := &world{o: o, units: map[string]*unit{}, ready: map[int]time.Duration{}, acct: newAccount(o)}
	w.s = virtual.New(virtual.Options{Start: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Hop: o.Hop, World: w})
	w.pool = newPool(w.s, o)
	return w
}

// Begin plays an attempt.
func (w *world) Begin(a *virtual.Attempt) {
	switch a.Type {
	case contract.GenerateRolloutsActivity.Name:
		play(w, a, w.generate)
	case contract.JudgeRolloutsActivity.Name:
		play(w, a, w.judge)
	case contract.UpdatePolicyActivity.Name:
		play(w, a, w.update)
	case contract.SaveCheckpointActivity.Name:
		play(w, a, w.checkpoint)
	case contract.AcquireTrainerActivity.Name:
		play(w, a, w.acquire)
	case contract.SealBatchActivity.Name:
		play(w, a, w.seal)
	case contract.PublishVersionActivity.Name:
		play(w, a, w.publish)
	case contract.CloseLedgerActivity.Name:
		play(w, a, func(a *virtual.Attempt, q contract.CloseLedgerRequest) {
			w.acct.end(q.Ledger)
			w.ended, w.usage = w.s.Now(), w.pool.usage()
			w.small(a, contract.Done{})
		})
	case contract.InspectActivity.Name:
		play(w, a, w.inspect)
	case contract.RecordEventActivity.Name:
		play(w, a, w.event)
	default:
		w.other(a)
	}
}

// inspect answers for groups that have not reported: nothing stands still here.
func (w *world) inspect(a *virtual.Attempt, q contract.InspectRequest) {
	var res contract.InspectResult
	for _, id := range q.Workflows {
		found := contract.Inspected{Status: "Completed"}
		if w.s.Open(id) {
			found = contract.Inspected{Status: "Running", Open: true, Mark: uint32(w.s.Now()/time.Second) + 1} //nolint:gosec // wraps after a century
		}
		res.Found = append(res.Found, found)
	}
	w.small(a, res)
}

// event ends the simulation at an alarm: the loop would wait for a person, and there is none.
func (w *world) event(a *virtual.Attempt, q contract.EventRequest) {
	if q.Event.Kind == "alarm" {
		w.s.Fail(fault.New(fault.Infrastructure, "simulate", "the simulated run stopped with an alarm: %s", q.Event.Message).
			WithHint("the run itself would wait for a person; lower --failures, or change rollout.fault_share and rollout.fault_window"))
	}
	w.small(a, contract.Done{})
}

// play decodes the request of an attempt.
func play[Req any](w *world, a *virtual.Attempt, do func(*virtual.Attempt, Req)) {
	var q Req
	if err := json.Unmarshal(a.Input, &q); err != nil {
		w.err = fault.New(fault.Internal, "simulate", "request of %s: %w", a.Type, err)
		a.Fail(string(fault.Invalid), "unreadable request", true)
		return
	}
	do(a, q)
}

// small ends an activity that only moves a few bytes.
func (w *world) small(a *virtual.Attempt, result any) {
	a.Take()
	w.s.After(w.o.Hop, func() { w.complete(a, result) })
}

func (w *world) complete(a *virtual.Attempt, result any) {
	text, err := json.Marshal(result)
	if err != nil {
		w.err = fault.New(fault.Internal, "simulate", "result of %s: %w", a.Type, err)
	}
	a.Complete(text)
}

// other are the activities that take no notable time and decide nothing here.
func (w *world) other(a *virtual.Attempt) {
	var result any
	switch a.Type {
	case contract.StartRunActivity.Name:
		result = w.o.Spec
	case contract.PlanDatasetActivity.Name:
		result = contract.PlanDatasetResult{Key: digest("data", 0), Ready: true}
	case contract.FinishDatasetActivity.Name:
		result = contract.DatasetResult{Dir: "datasets/simulated", Rows: w.o.TrainProblems + w.o.DevProblems, Train: w.o.TrainProblems, Dev: w.o.DevProblems}
	case contract.InitPolicyActivity.Name:
		w.began = w.s.Now() // the loop comes next
		result = contract.InitPolicyResult{Digest: digest("weights", 0), Parameters: 1}
	case contract.SummarizeValidationActivity.Name:
		w.held = w.s.Now()
		result = contract.SummarizeResult{Metrics: record.DevMetrics{Solved: w.o.DevProblems / 2, Acc: 0.5, PassRate: 0.5, FormatOK: 1}, Problems: w.o.DevProblems}
	case contract.ExportPolicyActivity.Name:
		result = contract.ExportResult{Dir: "runs/simulated/l0/export", WeightsDigest: digest("export", 0), Tensors: 1, Bytes: 1}
	case contract.WriteReportActivity.Name:
		result = contract.ReportResult{Report: reference("runs/simulated/l0/report.html", 0)}
	default: // ApplyRetention, and what a later build may add
		result = contract.Done{}
	}
	w.small(a, result)
}

// Closed counts an execution that has ended.
func (w *world) Closed(e virtual.Execution) {
	w.acct.history(e)
	if e.Type == contract.TrainRun && e.Outcome != "completed" && w.err == nil {
		w.err = fault.New(fault.Infrastructure, "simulate", "the simulated run ended as %s: %s", e.Outcome, e.Message).
			WithHint("the run itself would end so; lower --failures, or raise timeouts and slots")
	}
}

func (w *world) chance(p float64, labels ...any) bool {
	return p > 0 && rng.New(w.o.Seed, domain, labels...).Uniform(0) < p
}

// generate hands a unit to the rollout workers.
func (w *world) generate(a *virtual.Attempt, q contract.GenerateRequest) {
	key := q.Unit
	u := w.units[key]
	if u == nil {
		u = &unit{group: q.Split == "train"}
		for _, p := range q.Problems {
			for i := range q.Samples {
				n := w.o.Lengths.draw(w.o.Seed, fmt.Sprint(q.Split, " ", p), q.Submission, q.Tag*btoi(u.group)+q.MinVersion*btoi(!u.group), i)
				u.longest = max(u.longest, n)
				u.responses = append(u.responses, &response{length: n, min: -1})
			}
		}
		w.units[key] = u
		if u.group {
			w.acct.submitted(u)
		}
	}
	j := &job{attempt: a, unit: u}
	j.finished = func() {
		sampled := 0
		for _, r := range u.responses {
			sampled += r.length
		}
		w.complete(a, contract.GenerateResult{File: reference("runs/simulated/l0/"+key+"/trajectories.parquet", q.Group), Sampled: sampled})
	}
	if w.chance(w.o.Failures, "rollout", key, a.Number) {
		w.dieIn(j, rng.New(w.o.Seed, domain, "rollout dies", key, a.Number).Uniform(0))
	}
	w.pool.submit(j)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// dieIn lets the worker of a job die after a part of the time that the job needs without the others, if it still has it.
func (w *world) dieIn(j *job, part float64) {
	j.taken = func(on *machine) {
		need := float64(j.unit.longest) / w.o.Rate.at(w.o.Slots)
		w.s.After(time.Duration(part*need*float64(time.Second)), func() {
			if on.has(j) {
				w.acct.deaths++
				on.die()
			}
		})
	}
}

// judge takes a constant time. A fault is cured by the second attempt, or stays.
func (w *world) judge(a *virtual.Attempt, q contract.JudgeRequest) {
	a.Take()
	w.s.After(w.o.Judge, func() {
		u := w.units[q.Unit]
		if !a.Open() || u == nil { // a group that was cancelled, and whose cancel is on its way
			return
		}
		broken := u.group && w.chance(w.o.Failures, "judge", q.Unit)
		lasting := w.chance(0.5, "judge stays broken", q.Unit)
		if broken && (a.Number == 1 || lasting) {
			if a.Number == 1 {
				w.acct.judgeFaults++
			}
			a.Fail(string(fault.Infrastructure), "the sandbox could not start the interpreter", a.Number >= finalAttempt)
			return
		}
		u.judged = w.s.Now()
		w.complete(a, contract.JudgeResult{Verdicts: reference("runs/simulated/l0/"+q.Unit+"/verdicts.json", 0), RewardMean: record.Num(0.5)})
		if !u.group {
			delete(w.units, q.Unit) // validation: no one asks for it again
		}
	})
}

func (w *world) seal(a *virtual.Attempt, q contract.SealBatchRequest) {
	a.Take()
	w.s.After(w.o.Hop, func() {
		if !a.Open() {
			return
		}
		res := contract.SealBatchResult{
			Batch: reference(fmt.Sprintf("runs/simulated/l0/batches/%06d.json", q.Step), q.Step), RewardMean: record.Num(0.5),
			ZeroSpread: record.Num(0.25), LagMean: record.Num(1.5), LagMax: record.Num(3), LengthCut: record.Num(0.125),
		}
		for _, g := range q.Groups {
			u := w.units[g.Unit()]
			res.Groups = append(res.Groups, g.N)
			w.ready[q.Step] = max(w.ready[q.Step], u.judged)
			if !w.acct.trained(q.Step, u) {
				w.err = fault.New(fault.Internal, "simulate", "group %d was trained without all its tokens", g.N)
			}
			delete(w.units, g.Unit())
		}
		w.acct.record(q.Ledger)
		for _, d := range q.Ledger.Dropped {
			w.drop(d)
		}
		w.complete(a, res)
	})
}

// drop removes the unit of a dropped group.
func (w *world) drop(d record.Drop) {
	prefix := fmt.Sprintf("groups/%06d-", d.N)
	for key := range w.units {
		if strings.HasPrefix(key, prefix) {
			w.acct.dropped(d, w.units[key])
			delete(w.units, key)
		}
	}
}

func (w *world) publish(a *virtual.Attempt, q contract.PublishRequest) {
	a.Take()
	w.s.After(w.o.Hop, func() {
		w.pool.publish(q.Version)
		w.complete(a, contract.Done{})
	})
}

func (w *world) acquire(a *virtual.Attempt, _ contract.AcquireRequest) {
	a.Take()
	wait := w.o.Hop
	if w.trainer.epoch > 0 {
		wait = w.o.Restart
	}
	w.s.After(wait, func() {
		w.trainer.epoch++
		w.trainer.restored = false
		w.complete(a, contract.Trainer{Queue: w.queue(), Host: fmt.Sprintf("trainer-%d", w.trainer.epoch), Epoch: w.trainer.epoch})
	})
}

func (w *world) queue() string {
	return contract.TrainerQueue(fmt.Sprintf("trainer-%d", w.trainer.epoch))
}

// update trains one batch: after a restart behind a replay of what the newest checkpoint lacks.
func (w *world) update(a *virtual.Attempt, q contract.UpdateRequest) {
	if a.Queue != w.queue() || w.trainer.dead() {
		return // no one listens there; the server gives it up
	}
	a.Take()
	if q.Step > 1 && !w.broken {
		w.acct.overhead(w.s.Now() - max(w.lastEnd, w.ready[q.Step], w.held))
	}
	w.broken = true
	replayed := 0
	restored := !w.trainer.restored
	if restored {
		replayed = q.Step - 1 - w.trainer.checkpoint
	}
	replay := time.Duration(replayed) * w.o.Update
	if w.chance(w.o.Failures/10, "trainer", q.Step, w.trainer.epoch, a.Number) {
		part := rng.New(w.o.Seed, domain, "trainer dies", q.Step, w.trainer.epoch, a.Number).Uniform(0)
		after := time.Duration(part * float64(replay+w.o.Update))
		w.acct.trainersLost++
		w.s.After(after, func() {
			w.trainer.busy += after
			w.trainer.replayed += after
			w.trainer.lost = w.trainer.epoch
			a.Lost()
		})
		return
	}
	w.s.After(replay+w.o.Update, func() {
		if !a.Open() {
			return
		}
		w.trainer.busy += replay + w.o.Update
		w.trainer.replayed += replay
		w.trainer.restored = true
		w.lastEnd, w.broken = w.s.Now(), false
		delete(w.ready, q.Step)
		w.acct.updated(q.Step, w.s.Now(), replayed)
		w.complete(a, contract.UpdateResult{
			StateDigest: digest("state", q.Step), WeightsDigest: digest("weights", q.Step), GradNorm: record.Num(0.1234567890123),
			Correction: record.Num(0.01234567890123), Entropy: record.Num(0.5123456789012), LogProbGap: record.Num(0.0012345678901),
			Seconds: record.Num(w.o.Update.Seconds()), Replayed: replayed, Restored: restored,
		})
	})
}

func (w *world) checkpoint(a *virtual.Attempt, q contract.CheckpointRequest) {
	if a.Queue != w.queue() || w.trainer.dead() {
		return
	}
	a.Take()
	w.s.After(w.o.Checkpoint, func() {
		w.held = w.s.Now()
		w.trainer.busy += w.o.Checkpoint
		w.trainer.checkpoint = q.Step
		w.complete(a, contract.CheckpointResult{StateDigest: digest("state", q.Step)})
	})
}

// digest is of the form of a real one.
func digest(what string, n int) string {
	s := rng.New(uint64(max(n, 0)), domain, "digest", what) //nolint:gosec // not negative
	return fmt.Sprintf("%016x%016x%016x%016x", s.Uint64(0), s.Uint64(1), s.Uint64(2), s.Uint64(3))
}

func reference(name string, n int) artifact.Ref {
	return artifact.Ref{Name: name, Digest: digest(name, n), Size: 123456}
}
