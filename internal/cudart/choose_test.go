//go:build cuda

package cudart

import (
	"testing"

	"github.com/steadyrl/steady/internal/fault"
)

func TestChoose_refusesWhatIsNoGPU(t *testing.T) {
	for _, device := range []string{"-1", "first", "1.0", "GPU", "0x0"} {
		if _, err := Choose(device, "/does/not/exist"); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%q: %v, want Invalid with a hint", device, err)
		}
	}
}
