//go:build cuda

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/doctor"
	"github.com/steadyrl/steady/internal/fault"
)

// gpuChecks opens what the GPU engine needs: driver, device, NVML, NVRTC, cuBLASLt, cuDNN. Nothing missing is a failure: the CPU engines
// need none of it. Environment variables name files that are not in the usual places.
func gpuChecks() []doctor.Check {
	checks := []doctor.Check{driverCheck()}
	checks = append(checks, deviceChecks()...)
	return append(checks,
		libraryCheck("NVRTC", "STEADY_NVRTC", func(path string) (string, error) {
			c, err := cudart.NewCompiler(path)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s at %s", c.Version(), c.Path), nil
		}),
		libraryCheck("cuBLASLt", "STEADY_CUBLASLT", func(path string) (string, error) {
			file, version, err := cudart.BLASVersion(path)
			return fmt.Sprintf("%d at %s", version, file), err
		}),
		libraryCheck("cuDNN", "STEADY_CUDNN", func(path string) (string, error) {
			l, err := cudart.Find(cudart.CUDNN, path)
			if err != nil {
				return "", err
			}
			return l.Path, nil
		}))
}

func driverCheck() doctor.Check {
	c := doctor.Check{Name: "GPU driver", Status: doctor.OK}
	if err := cudart.Load(os.Getenv("STEADY_CUDA_DRIVER")); err != nil {
		return lacking(c.Name, err)
	}
	n, err := cudart.Devices()
	if err != nil {
		return lacking(c.Name, err)
	}
	c.Found = fmt.Sprintf("starts, %d devices", n)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range n {
		ctx, err := cudart.NewContext(i)
		if err != nil {
			return lacking(c.Name, err)
		}
		c.Found += fmt.Sprintf("; %d: %s, %s, %d multiprocessors", i, ctx.Name, ctx.Arch(), ctx.Processors)
		if err := ctx.Close(); err != nil {
			return lacking(c.Name, err)
		}
	}
	return c
}

func deviceChecks() []doctor.Check {
	version, gpus, err := cudart.ReadHealth()
	if err != nil {
		return []doctor.Check{lacking("NVML", err)}
	}
	checks := []doctor.Check{{Name: "NVML", Status: doctor.OK, Found: fmt.Sprintf("driver %s, %d GPUs", version, len(gpus))}}
	for i, g := range gpus {
		c := doctor.Check{Name: fmt.Sprintf("GPU %d", i), Status: doctor.OK, Found: fmt.Sprintf("%s, %d of %d MiB used, %d C, %d W, %d%% busy",
			g.Name, g.MemoryUsed>>20, g.MemoryTotal>>20, g.Temperature, g.Power, g.Utilization)}
		if g.Uncorrected > 0 {
			c.Status, c.Do = doctor.Warn, fmt.Sprintf("%d memory errors were not corrected: reset or replace this GPU", g.Uncorrected)
		}
		checks = append(checks, c)
	}
	return checks
}

func libraryCheck(name, variable string, open func(path string) (string, error)) doctor.Check {
	found, err := open(os.Getenv(variable))
	if err != nil {
		c := lacking(name, err)
		c.Do += fmt.Sprintf("; %s names the file", variable)
		return c
	}
	return doctor.Check{Name: name, Status: doctor.OK, Found: found}
}

// lacking is the finding of something that cannot be used; only the first line of a long reason is shown.
func lacking(name string, err error) doctor.Check {
	reason, _, more := strings.Cut(err.Error(), "\n")
	if more {
		reason += " (and other places)"
	}
	hint := fault.HintOf(err)
	if hint == "" {
		hint = "install NVIDIA's driver"
	}
	return doctor.Check{Name: name, Status: doctor.Warn, Found: reason, Do: hint + "; the CPU engines need none of it"}
}
