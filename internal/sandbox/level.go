package sandbox

import "fmt"

// String says in one line what is enforced. It does not name the interpreter.
func (l Level) String() string {
	s := fmt.Sprintf("Landlock ABI %d, seccomp %s, namespaces %s, programs run as %s", l.LandlockABI, l.Seccomp, l.Namespaces, l.User)
	if !l.RunDelay {
		s += ", charged time is wall time"
	}
	return s
}
