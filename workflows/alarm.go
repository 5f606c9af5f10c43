package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// eventAlarm is the kind of the event that too many groups were lost.
const eventAlarm = "alarm"

// countFault counts a group that was lost to an infrastructure fault while step t is in progress. Those that failed while an alarm
// held the loop are of the old alarm, not of a new one.
func (l *loop) countFault(n, t int) {
	if l.excused[n] {
		delete(l.excused, n)
		return
	}
	if k := len(l.st.Faults); k > 0 && l.st.Faults[k-1].Step == t {
		l.st.Faults[k-1].Groups++
		return
	}
	l.st.Faults = append(l.st.Faults, contract.FaultCount{Step: t, Groups: 1})
}

// raiseAlarm stops training when more groups than the limit were lost within the window of steps that ends with t: the loop
// pauses with the reason, or the run fails, as configured. A paused loop keeps every group that has finished and sends none out until a
// person resumes it, which begins a new window.
func (l *loop) raiseAlarm(t int) error {
	for len(l.st.Faults) > 0 && l.st.Faults[0].Step <= t-l.spec.FaultWindow {
		l.st.Faults = l.st.Faults[1:]
	}
	lost := 0
	for _, f := range l.st.Faults {
		lost += f.Groups
	}
	if l.spec.FaultLimit == 0 || lost <= l.spec.FaultLimit || l.st.Alarm != "" {
		return nil
	}
	text := fmt.Sprintf("%d groups were lost to infrastructure faults in the steps %d to %d, the limit is %d; the newest: %s",
		lost, l.st.Faults[0].Step, t, l.spec.FaultLimit, l.fault)
	if l.spec.FaultAction == "fail" {
		return temporal.NewNonRetryableApplicationError(text, string(fault.Infrastructure), nil)
	}
	l.st.Alarm, l.st.Paused = clip(text, 400), true
	return nil
}

// endAlarm begins a new window.
func (l *loop) endAlarm() {
	if l.st.Alarm == "" {
		return
	}
	l.st.Alarm, l.st.Faults = "", nil
	l.excused = map[int]bool{}
	for _, g := range l.st.Open {
		if g.Failed != "" {
			l.excused[g.N] = true
		}
	}
}
