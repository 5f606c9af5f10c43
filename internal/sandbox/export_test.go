package sandbox

// HelperPID is the process id of the helper, 0 if none runs.
func (s *Sandbox) HelperPID() int {
	l := s.launch.(*spawner)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pid
}
