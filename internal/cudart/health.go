//go:build cuda

package cudart

import (
	"errors"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/steadyrl/steady/internal/fault"
)

// Health is what NVML says of one GPU. A value that the GPU does not report is -1, a text empty.
type Health struct {
	Name, UUID string
	// MemoryUsed and MemoryTotal are bytes.
	MemoryUsed, MemoryTotal int64
	// Temperature is in degrees Celsius, Power in watts, Utilization in percent of the last sample period.
	Temperature, Power, Utilization int
	// Uncorrected counts ECC errors that were not corrected since the driver was loaded.
	Uncorrected int64
}

// ReadHealth asks NVML for the driver's version and every GPU. It wakes no GPU. Errors: NotFound (no NVML library), Infrastructure.
func ReadHealth() (driverVersion string, gpus []Health, err error) {
	const op = "cudart.ReadHealth"
	if r := nvml.Init(); r != nvml.SUCCESS {
		kind := fault.Infrastructure
		if r == nvml.ERROR_LIBRARY_NOT_FOUND {
			kind = fault.NotFound
		}
		return "", nil, fault.New(kind, op, "NVML: %w", errors.New(nvml.ErrorString(r)))
	}
	defer nvml.Shutdown()
	driverVersion, _ = nvml.SystemGetDriverVersion() // empty when refused
	n, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return driverVersion, nil, fault.New(fault.Infrastructure, op, "NVML: %w", errors.New(nvml.ErrorString(r)))
	}
	for i := range n {
		d, r := nvml.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			return driverVersion, gpus, fault.New(fault.Infrastructure, op, "GPU %d: %w", i, errors.New(nvml.ErrorString(r)))
		}
		gpus = append(gpus, health(d))
	}
	return driverVersion, gpus, nil
}

func health(d nvml.Device) Health {
	h := Health{MemoryUsed: -1, MemoryTotal: -1, Temperature: -1, Power: -1, Utilization: -1, Uncorrected: -1}
	h.Name, _ = d.GetName()
	h.UUID, _ = d.GetUUID()
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		h.MemoryUsed, h.MemoryTotal = int64(m.Used), int64(m.Total) //nolint:gosec // bytes of a GPU
	}
	if t, r := d.GetTemperature(nvml.TEMPERATURE_GPU); r == nvml.SUCCESS {
		h.Temperature = int(t)
	}
	if p, r := d.GetPowerUsage(); r == nvml.SUCCESS {
		h.Power = int(p / 1000)
	}
	if u, r := d.GetUtilizationRates(); r == nvml.SUCCESS {
		h.Utilization = int(u.Gpu)
	}
	if e, r := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r == nvml.SUCCESS {
		h.Uncorrected = int64(e) //nolint:gosec // a count
	}
	return h
}

// HealthOf is that of the GPU with this UUID. NVML counts every GPU of the machine in the order of the bus; the driver counts those that CUDA_VISIBLE_DEVICES
// shows, in its order, so a number of one says nothing to the other.
func HealthOf(gpus []Health, uuid string) (Health, bool) {
	i := slices.IndexFunc(gpus, func(g Health) bool { return g.UUID != "" && g.UUID == uuid })
	if i < 0 {
		return Health{}, false
	}
	return gpus[i], true
}

// ProcessMemory is the memory in bytes that each process has on the GPU with this UUID, by the process numbers that NVML sees, which are those of the host. Errors:
// NotFound (no NVML, no such GPU, or it does not say), Infrastructure.
func ProcessMemory(uuid string) (map[uint32]int64, error) {
	const op = "cudart.ProcessMemory"
	dev, err := nvmlDevice(uuid, op)
	if err != nil {
		return nil, err
	}
	defer nvml.Shutdown()
	list, r := dev.GetComputeRunningProcesses()
	if r != nvml.SUCCESS {
		return nil, fault.New(fault.NotFound, op, "processes of GPU %s: %w", uuid, errors.New(nvml.ErrorString(r)))
	}
	out := map[uint32]int64{}
	for _, p := range list {
		if p.UsedGpuMemory == math.MaxUint64 {
			return nil, fault.New(fault.NotFound, op, "GPU %s does not say what a process uses", uuid)
		}
		out[p.Pid] += int64(p.UsedGpuMemory) //nolint:gosec // bytes of a GPU
	}
	return out, nil
}
