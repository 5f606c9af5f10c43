//go:build cuda

package cudart

import (
	"errors"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"gorgonia.org/cu"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/gpuwatch"
)

// UUID is that of the GPU which the driver counts as number ordinal, as `nvidia-smi -L` prints it. The driver must be loaded. NVML may count
// in another order. Errors: Lost.
func UUID(ordinal int) (string, error) {
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return "", driver("cudart.UUID", err)
	}
	id, err := dev.UUID()
	if err != nil {
		return "", driver("cudart.UUID", err)
	}
	return "GPU-" + id.String(), nil
}

// Monitor reads events and counters of one GPU from NVML.
type Monitor struct {
	dev    nvml.Device
	set    nvml.EventSet // nil if the GPU has no events
	Events bool          // whether it reports events; without, only counters are read
}

// nvmlDevice starts NVML, which the caller shuts down, and finds the GPU with this UUID. Errors: NotFound (no NVML, no such GPU), Infrastructure.
func nvmlDevice(uuid, op string) (nvml.Device, error) {
	if r := nvml.Init(); r != nvml.SUCCESS {
		kind := fault.Infrastructure
		if r == nvml.ERROR_LIBRARY_NOT_FOUND {
			kind = fault.NotFound
		}
		return nil, fault.New(kind, op, "NVML: %w", errors.New(nvml.ErrorString(r)))
	}
	dev, r := nvml.DeviceGetHandleByUUID(uuid)
	if r != nvml.SUCCESS {
		nvml.Shutdown()
		return nil, fault.New(fault.NotFound, op, "GPU %s: %w", uuid, errors.New(nvml.ErrorString(r)))
	}
	return dev, nil
}

// NewMonitor starts NVML for the GPU with this UUID. Close ends it. Errors: NotFound (no NVML, no such GPU), Infrastructure.
func NewMonitor(uuid string) (*Monitor, error) {
	const op = "cudart.NewMonitor"
	dev, err := nvmlDevice(uuid, op)
	if err != nil {
		return nil, err
	}
	m := &Monitor{dev: dev}
	if supported, r := m.dev.GetSupportedEventTypes(); r == nvml.SUCCESS {
		if wanted := supported & (nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError); wanted != 0 {
			if m.set, r = nvml.EventSetCreate(); r == nvml.SUCCESS {
				m.Events = m.dev.RegisterEvents(wanted, m.set) == nvml.SUCCESS
			}
		}
	}
	return m, nil
}

// Wait implements gpuwatch.Source.
func (m *Monitor) Wait(limit time.Duration) (gpuwatch.Event, bool, error) {
	if !m.Events {
		<-time.After(limit)
		return gpuwatch.Event{}, false, nil
	}
	data, r := m.set.Wait(uint32(limit.Milliseconds())) //nolint:gosec // seconds
	switch r {
	case nvml.SUCCESS:
		switch data.EventType {
		case nvml.EventTypeXidCriticalError:
			return gpuwatch.Event{Xid: data.EventData}, true, nil
		case nvml.EventTypeDoubleBitEccError:
			return gpuwatch.Event{Uncorrected: true}, true, nil
		}
		return gpuwatch.Event{}, true, nil
	case nvml.ERROR_TIMEOUT:
		return gpuwatch.Event{}, false, nil
	}
	return gpuwatch.Event{}, false, reading(r)
}

// Uncorrected implements gpuwatch.Source.
func (m *Monitor) Uncorrected() (int64, error) {
	n, r := m.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	switch r {
	case nvml.SUCCESS:
		return int64(n), nil //nolint:gosec // a count
	case nvml.ERROR_NOT_SUPPORTED:
		return -1, nil
	}
	return -1, reading(r)
}

// reading maps NVML's refusal to read.
func reading(r nvml.Return) error {
	kind := fault.Infrastructure
	if r == nvml.ERROR_GPU_IS_LOST || r == nvml.ERROR_RESET_REQUIRED {
		kind = fault.Lost
	}
	return fault.New(kind, "cudart.Monitor", "NVML: %w", errors.New(nvml.ErrorString(r)))
}

// Close gives NVML back.
func (m *Monitor) Close() {
	if m.set != nil {
		m.set.Free()
	}
	nvml.Shutdown()
}
