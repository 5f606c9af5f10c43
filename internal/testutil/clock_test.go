package testutil_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/testutil"
)

// child makes the test binary tell the time whenever it is asked.
const child = "STEADY_TEST_CLOCK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Println(now.UnixNano(), int64(now.Sub(began)))
	}
}

// clock is a process that tells the time.
type clock struct {
	t   *testing.T
	cmd *exec.Cmd
	ask io.Writer
	say io.Reader

	began time.Time
	ran   time.Duration // as it said
}

func newClock(t *testing.T) *clock {
	t.Helper()
	c := &clock{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), child+"=1")
	var err error
	if c.ask, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if c.say, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	c.began = time.Now()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// check wants the process to be ahead of this one by d, and its durations to go on as if its clock had not been set.
func (c *clock) check(d time.Duration) {
	c.t.Helper()
	before := time.Now()
	if _, err := fmt.Fprintln(c.ask); err != nil {
		c.t.Fatal(err)
	}
	var now int64
	var runs time.Duration
	if _, err := fmt.Fscanln(c.say, &now, (*int64)(&runs)); err != nil {
		c.t.Fatal(err)
	}
	after := time.Now()
	// It read its clock between the two readings here.
	if at := time.Unix(0, now).Add(-d); at.Before(before.Round(0)) || at.After(after.Round(0)) {
		c.t.Errorf("the time of day is %s without the %s that it was set by, want %s to %s", at, d, before, after)
	}
	if most := after.Sub(c.began); runs < c.ran || runs > most {
		c.t.Errorf("the process says that it runs for %s, want %s to %s", runs, c.ran, most)
	}
	c.ran = runs
}

func TestSetClock_setsTheTimeOfDayOfOneProcess(t *testing.T) {
	t.Parallel()
	set, other := newClock(t), newClock(t)
	set.check(0)
	if err := testutil.SetClock(set.cmd.Process.Pid, -time.Hour); err != nil {
		t.Skip("clocks of processes cannot be set here:", err)
	}
	set.check(-time.Hour)
	for d := -time.Hour; d < 3*time.Hour; d += 20 * time.Minute {
		set.check(d)
		if err := testutil.SetClock(set.cmd.Process.Pid, 20*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	set.check(3 * time.Hour)
	other.check(0)
	newClock(t).check(0)
}

func TestSetClock_refusesAProcessThatIsGone(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	if err := testutil.SetClock(c.cmd.Process.Pid, time.Hour); err == nil {
		t.Error("no error")
	}
}
