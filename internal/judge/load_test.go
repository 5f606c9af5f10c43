package judge_test

import (
	"math"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/sandbox"
)

// burn keeps every core busy with four processes until the test has ended. Each ends by itself after two minutes of
// work, should nobody be left to end it.
func burn(t *testing.T) {
	t.Helper()
	for range 4 * runtime.NumCPU() {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -t 120; while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the kernel may share cores among sessions, and programs have their own
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended by then
	}
}

// With four jobs a core beside it, the judge gives the verdicts that it gives alone. A program that works for one of
// its three seconds is among them; waiting, for a slot or for a core, is not charged.
func TestSuite_underLoad(t *testing.T) { // not parallel: it would spoil the times of others
	if testing.Short() {
		t.Skip("keeps all cores busy; left out by -short")
	}
	var part []suiteCase
	for i, c := range readSuite(t) {
		if c.ID == "limits/busy-for-a-second" || !c.Slow && i%8 == 0 {
			part = append(part, c)
		}
	}
	j := judge.New(judge.Options{Runner: openSandbox(t, sandbox.Options{})})
	burn(t)
	verdicts := judgeSuite(t, j, part)
	var queued, charged float64
	for _, v := range verdicts {
		queued += v.QueueSeconds
		charged += v.ChargedSeconds
	}
	// All submissions come at once, so most of them wait while others run; none is charged for it.
	if len(part) < 20 || queued <= charged {
		t.Errorf("%d submissions waited %.1f s and were charged %.1f s, want at least 20 that waited longer than they ran", len(part), queued, charged)
	}
}

// Time in the queue is recorded, and leaves the budget alone.
func TestJudge_queueIsNotCharged(t *testing.T) {
	t.Parallel()
	waited := ended(sandbox.OK, "1", 0.25)
	waited.QueueSeconds = 1000
	tests := []judge.Test{{Output: "1"}, {Output: "1"}, {Output: "1"}}
	v, err := judge.New(judge.Options{Runner: &script{results: []sandbox.Result{waited}}, Budget: time.Second}).JudgeCode(t.Context(), "", tests)
	if err != nil || v.Kind != judge.Accepted || v.BudgetExhausted || v.QueueSeconds != 3000 || v.ChargedSeconds != 0.75 || v.Tests[2].QueueSeconds != 1000 {
		t.Errorf("%+v, %v; want accepted, 3000 s in the queue and 0.75 s charged", v, err)
	}
}

// A submission stops where the charged times of its tests reach the budget. What ran keeps its verdict, the rest is
// not run and counts as failed, and the first failure names the submission. The programs sleep, which is charged;
// how many tests fit depends on the machine, that they fit does not.
func TestJudge_budgetOfRealPrograms(t *testing.T) {
	t.Parallel()
	box := openSandbox(t, sandbox.Options{})
	tests := make([]judge.Test, 8)
	for i := range tests {
		tests[i] = judge.Test{Input: "0.4\n", Output: "done\n"}
	}
	for _, tt := range []struct {
		name, code string
		budget     time.Duration
		want, ran  judge.Kind
	}{
		{"all that ran passed", "import time\ntime.sleep(float(input()))\nprint('done')", time.Second, judge.BudgetExhausted, judge.Accepted},
		{"all that ran failed", "import time\ntime.sleep(float(input()))\nprint('no')", time.Second, judge.WrongAnswer, judge.WrongAnswer},
		{"used up by the first", "import time\ntime.sleep(float(input()))\nprint('done')", time.Nanosecond, judge.BudgetExhausted, judge.Accepted},
		{"enough for all", "print('done')", 0, judge.Accepted, judge.Accepted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			budget := tt.budget
			if budget == 0 {
				budget = judge.DefaultBudget
			}
			v, err := judge.New(judge.Options{Runner: box, Budget: tt.budget}).JudgeCode(t.Context(), tt.code, tests)
			if err != nil {
				t.Fatal(err)
			}
			ran, spent := 0, 0.0
			for i, test := range v.Tests {
				if spent < budget.Seconds() {
					ran++
					spent += test.ChargedSeconds
					if test.Kind != tt.ran {
						t.Errorf("test %d is %s after %.3f s of %s, want %s", i, test.Kind, spent, budget, tt.ran)
					}
				} else if test != (judge.TestVerdict{Kind: judge.NotRun}) {
					t.Errorf("test %d is %+v after %.3f s of %s, want not_run and no times", i, test, spent, budget)
				}
			}
			passed := 0
			if tt.ran == judge.Accepted {
				passed = ran
			}
			if v.Kind != tt.want || v.Passed != passed || v.Total != 8 || v.BudgetExhausted != (ran < 8) || v.Reward() != float64(passed)/8 {
				t.Errorf("%+v; want %s, %d of 8 passed, %d run", v, tt.want, passed, ran)
			}
			if math.Abs(v.ChargedSeconds-spent) > 1e-9 || tt.want != judge.Accepted && ran > 3 {
				t.Errorf("charged %.3f s for %d tests that sum to %.3f s", v.ChargedSeconds, ran, spent)
			}
		})
	}
}
