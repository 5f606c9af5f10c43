package obs

import (
	"sync"

	"go.uber.org/zap/zapcore"
)

// sink is a log file that may fail: on a full disk a program goes on without its log.
type sink struct {
	zapcore.WriteSyncer
	lost func(error)
	once sync.Once
}

// Write reports the whole line as written. The first error goes to lost, the others nowhere.
func (s *sink) Write(line []byte) (int, error) {
	if _, err := s.WriteSyncer.Write(line); err != nil {
		s.report(err)
	}
	return len(line), nil
}

// Sync as Write.
func (s *sink) Sync() error {
	if err := s.WriteSyncer.Sync(); err != nil {
		s.report(err)
	}
	return nil
}

func (s *sink) report(err error) {
	s.once.Do(func() {
		if s.lost != nil {
			s.lost(err)
		}
	})
}
