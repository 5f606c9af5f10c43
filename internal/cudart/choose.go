//go:build cuda

package cudart

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// chosen is the UUID of the one GPU that the driver was started with, "" for all.
var chosen string

// Choose starts the driver for the GPU that device names: its number as the driver counts, "" for 0, or its UUID as nvidia-smi -L
// prints it. It returns the number for NewContext. A UUID hides all other GPUs from this process, as CUDA_VISIBLE_DEVICES does, so it works only
// before the first Load. Errors: Invalid (no such form), NotFound (no such GPU; the hint lists those that are there), those of Load.
func Choose(device, library string) (int, error) {
	const op = "cudart.Choose"
	if strings.HasPrefix(device, "GPU-") || strings.HasPrefix(device, "MIG-") {
		if loaded && chosen != device {
			return 0, fault.New(fault.Internal, op, "the driver was started before GPU %s was chosen", device)
		}
		if _, gpus, err := ReadHealth(); err == nil && strings.HasPrefix(device, "GPU-") {
			var known []string
			for _, g := range gpus {
				known = append(known, g.UUID)
			}
			if !slices.Contains(known, device) {
				return 0, fault.New(fault.NotFound, op, "there is no GPU %s", device).WithHint("this machine has %s", strings.Join(known, ", "))
			}
		}
		if err := os.Setenv("CUDA_VISIBLE_DEVICES", device); err != nil {
			return 0, fault.New(fault.Internal, op, "%w", err)
		}
		chosen = device
		return 0, Load(library)
	}
	n := 0
	if device != "" {
		var err error
		if n, err = strconv.Atoi(device); err != nil || n < 0 {
			return 0, fault.New(fault.Invalid, op, "%q is no GPU", device).WithHint("give its number, or its UUID as `nvidia-smi -L` prints it")
		}
	}
	if err := Load(library); err != nil {
		return 0, err
	}
	there, err := Devices()
	if err != nil {
		return 0, err
	}
	if n >= there {
		return 0, fault.New(fault.NotFound, op, "GPU %d is asked for, there are %d", n, there).WithHint("`steady-cuda doctor` lists them")
	}
	return n, nil
}
