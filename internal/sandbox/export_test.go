package sandbox

import "time"

// HelperPID is the process id of the helper, 0 if none runs.
func (s *Sandbox) HelperPID() int {
	l := s.launch.(*spawner)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pid
}

// SetStartLimit is the longest wait for a live interpreter from now on.
func (s *Sandbox) SetStartLimit(d time.Duration) { s.startLimit = d }

// Without returns p without the needed files whose paths contain part, and how many these are.
func (p Python) Without(part string) (Python, int) {
	p.withheld = part
	grants, err := p.grants()
	if err != nil {
		return p, 0
	}
	p.withheld = ""
	all, err := p.grants()
	p.withheld = part
	if err != nil {
		return p, 0
	}
	return p, len(all) - len(grants)
}

// Users are the users of the slots, none where programs keep the user of this process.
func (s *Sandbox) Users() []int64 { return s.users.ids }

// Choose is the choice of an interpreter.
var Choose = choose
