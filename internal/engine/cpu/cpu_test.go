package cpu_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/engine/enginetest"
	"github.com/steadyrl/steady/internal/model"
)

func TestConformance(t *testing.T) {
	for _, level := range kernel.Supported() {
		t.Run(level.String(), func(t *testing.T) {
			opts := cpu.Options{Threads: 2, Kernels: level.String()}
			enginetest.Run(t, enginetest.Backend{
				NewSampler:  func(c model.Config) (engine.Sampler, error) { return cpu.NewSampler(c, opts) },
				NewTrainer:  func(c model.Config, w *model.Weights) (engine.Trainer, error) { return cpu.NewTrainer(c, w, opts) },
				Unit:        enginetest.Float32,
				ExactDecode: true,
			})
		})
	}
}

// TestCompiler_fusesNothing compiles both packages for the two targets on which the Go compiler may fuse a product
// into a sum, and looks for such instructions: one would give other bits than the assembly.
func TestCompiler_fusesNothing(t *testing.T) {
	t.Parallel()
	fused := regexp.MustCompile(`(?m)^.*\.go:\d+\)\s+(VFN?M(ADD|SUB)\w*|FN?M(ADD|SUB)[SD])\b.*$`)
	for _, env := range []string{"GOARCH=arm64", "GOAMD64=v3"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", ".", "./kernel")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", env)
		if env != "GOARCH=arm64" {
			cmd.Env = append(cmd.Env, "GOARCH=amd64")
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s go build: %v\n%s", env, err, out)
		}
		if !strings.Contains(string(out), "STEXT") {
			t.Fatalf("%s: the compiler printed no assembly", env)
		}
		if lines := fused.FindAllString(string(out), 5); len(lines) > 0 {
			t.Errorf("%s: fused instructions; wrap the product in float32() or float64():\n%s", env, strings.Join(lines, "\n"))
		}
	}
}
