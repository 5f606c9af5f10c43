package workers

import (
	"context"
	"testing"

	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/fault"
)

// A device that is lost ends the work of this process and is told once; one that is watched to the end is not lost.
func TestSet_tellsOfALostDevice(t *testing.T) {
	t.Parallel()
	gone := fault.New(fault.Lost, "gpu", "GPU-1: Xid 79")
	s := &Set{lost: make(chan error, 1)}
	device := s.watch(factory{watch: func(context.Context) error { return gone }}, zap.NewNop())
	if err := <-s.Lost(); !fault.Is(err, fault.Lost) {
		t.Errorf("told %v, want Lost", err)
	}
	<-device.Done()
	if cause := context.Cause(device); cause != gone { //nolint:errorlint // this very error
		t.Errorf("the cause is %v, want %v", cause, gone)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}

	for name, f := range map[string]factory{
		"watched":  {watch: func(ctx context.Context) error { <-ctx.Done(); return nil }},
		"no watch": {},
	} {
		s := &Set{lost: make(chan error, 1)}
		device := s.watch(f, zap.NewNop())
		if err := s.Stop(); err != nil { // returns only when the watch has ended
			t.Error(err)
		}
		if device.Err() != nil || len(s.lost) != 0 {
			t.Errorf("%s: the device is lost: %v", name, context.Cause(device))
		}
	}
}
