package external

import "time"

// Unproved is New without asking the server for anything.
func Unproved(o Options) (*Sampler, error) {
	o, err := o.complete()
	return newSampler(o), err
}

// SetIdle changes how long the server may send nothing. No request may run.
func (s *Sampler) SetIdle(d time.Duration) { s.o.Idle = d }
