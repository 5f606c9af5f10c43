//go:build cuda

package cuda

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/enginetest"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// The device under test is chosen once: a GPU if the driver finds one, else the emulated one, which runs the same kernel sources on the host
// (testdata/emulator.h) and so checks everything but the GPU itself.
var underTest struct {
	sync.Once
	opts     Options
	emulated bool
	skip     string
	err      error
}

var emulatorDir string

func TestMain(m *testing.M) {
	var err error
	if emulatorDir, err = os.MkdirTemp("", "steady-emulator-*"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(emulatorDir)
	os.Exit(code)
}

// options returns the options of the device under test, or skips.
func options(t *testing.T, p Precision) Options {
	t.Helper()
	underTest.Do(chooseDevice)
	if underTest.err != nil {
		t.Fatal(underTest.err)
	}
	if underTest.skip != "" {
		t.Skip(underTest.skip)
	}
	o := underTest.opts
	o.Precision = p
	return o
}

func chooseDevice() {
	err := cudart.Load(os.Getenv("STEADY_CUDA_DRIVER"))
	switch {
	case err == nil:
		dir := cmp.Or(os.Getenv("STEADY_KERNELS"), filepath.Join(emulatorDir, "kernels"))
		underTest.opts = Options{NVRTC: os.Getenv("STEADY_NVRTC"), CUBLASLt: os.Getenv("STEADY_CUBLASLT"), KernelDir: dir}
		return
	case !fault.Is(err, fault.NotFound):
		underTest.skip = fmt.Sprintf("the driver has no device: %v", err)
		return
	}
	if _, err := exec.LookPath("g++"); err != nil {
		underTest.skip = "no driver and no g++ for the emulated device"
		return
	}
	underTest.emulated = true
	driver := filepath.Join(emulatorDir, "libcuda.so")
	if underTest.err = compileHost("testdata/driver.cpp", driver); underTest.err != nil {
		return
	}
	if underTest.err = cudart.Load(driver); underTest.err != nil {
		return
	}
	underTest.opts = Options{compile: emulate, PlainProducts: true}
}

func compileHost(source, library string, flags ...string) error {
	args := append([]string{"-O2", "-g", "-std=c++14", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wno-unknown-pragmas"}, flags...)
	if out, err := exec.Command("g++", append(args, "-o", library, source)...).CombinedOutput(); err != nil {
		return fmt.Errorf("g++ %s: %w\n%s", source, err, out)
	}
	return nil
}

var (
	emulateMu  sync.Mutex
	kernelName = regexp.MustCompile(`(?m)^(?:KERNEL |ATTEND_KERNEL\()(\w+)[(,]`)
)

// emulate compiles the kernels for the host; the image of a module is the path of its library.
func emulate(_ string, p Precision) ([]byte, error) {
	emulateMu.Lock()
	defer emulateMu.Unlock()
	library := filepath.Join(emulatorDir, "kernels-"+string(p)+".so")
	if _, err := os.Stat(library); err == nil {
		return []byte(library), nil
	}
	text := source()
	tensor, err := kernelFiles.ReadFile("kernels/decode.cu") // of BF16 alone
	if err != nil {
		return nil, err
	}
	for _, m := range kernelName.FindAllStringSubmatch(source(), -1) {
		if p == BF16 || !bytes.Contains(tensor, []byte("KERNEL "+m[1]+"(")) {
			text += "EMULATE(" + m[1] + ")\n"
		}
	}
	file := filepath.Join(emulatorDir, "kernels-"+string(p)+".cpp")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "#line 1", "# 1")), 0o600); err != nil {
		return nil, err
	}
	header, err := filepath.Abs("testdata/emulator.h")
	if err != nil {
		return nil, err
	}
	return []byte(library), compileHost(file, library, "-include", header, "-D"+p.define())
}

// Float32 with plain products against the reference, at the tolerances of float32.
func TestConformance_float32(t *testing.T) {
	o := options(t, Float32)
	enginetest.Run(t, enginetest.Backend{
		NewSampler: func(c model.Config) (engine.Sampler, error) { return NewSampler(c, o) },
		NewTrainer: func(c model.Config, initial *model.Weights) (engine.Trainer, error) { return NewTrainer(c, initial, o) },
		// The trainer's forward pass is the sampler's.
		ExactDecode: true,
		Unit:        enginetest.Float32,
	})
}

// BF16 against the reference: the suite's bound for this unit is loose, see TestBF16_isNearTheReference; what it checks here is everything that is exact,
// such as independence of the batch and equal bits of Score and Generate.
func TestConformance_bf16(t *testing.T) {
	o := options(t, BF16)
	enginetest.Run(t, enginetest.Backend{
		NewSampler: func(c model.Config) (engine.Sampler, error) { return NewSampler(c, o) },
		NewTrainer: func(c model.Config, initial *model.Weights) (engine.Trainer, error) { return NewTrainer(c, initial, o) },
		// The trainer's forward pass is the sampler's.
		ExactDecode: true,
		Unit:        0x1p-8,
	})
}
