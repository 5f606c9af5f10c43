//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/cudart"
)

// compiler opens NVRTC or skips: it is in no package that a build needs.
func compiler(t *testing.T) *cudart.Compiler {
	t.Helper()
	c, err := cudart.NewCompiler(os.Getenv("STEADY_NVRTC"))
	if err != nil {
		t.Skipf("kernels are not compiled here: %v (scripts/nvrtc fetches it; STEADY_NVRTC names the file)", err)
	}
	return c
}

func TestKernels_compileForEveryArchitecture(t *testing.T) {
	c := compiler(t)
	for _, tt := range []struct {
		p    Precision
		arch string
	}{{BF16, "sm_80"}, {BF16, "sm_90"}, {Float32, "compute_80"}} {
		code, err := c.Compile("kernels.cu", source(), tt.arch, tt.p.define())
		if err != nil {
			t.Errorf("%s: %v", tt.p, err)
		} else if len(code) < 10_000 {
			t.Errorf("%s for %s: only %d bytes of code", tt.p, tt.arch, len(code))
		}
	}
	if c.Major >= ownCompiler {
		code, err := c.Compile("product.cu", productSource(), ownArch, BF16.define())
		for _, name := range []string{"product64tall", "product128talljoin", "product256silu"} {
			if err != nil || !bytes.Contains(code, []byte(name)) {
				t.Errorf("products: %d bytes of code without %s, %v", len(code), name, err)
			}
		}
	}
	if _, err := c.Compile("wrong.cu", source()+"KERNEL wrong() { int x = }\n", "sm_80"); err == nil || !bytes.Contains([]byte(err.Error()), []byte(kernelOrder[len(kernelOrder)-1]+"(")) {
		t.Errorf("a wrong line gives %v, want an error that names its file", err)
	}
}

// A launch asks for the shared memory and the threads of a kernel that stands in another language.
func TestKernels_haveTheTilesOfTheirLaunches(t *testing.T) {
	for _, x := range tilings() {
		if line := fmt.Sprintf("PRODUCT(%s, %d, %d, %d, %d, %d, false, false)\n", x.name, x.n, x.groups, x.ahead, x.near, x.flying); !strings.Contains(productSource(), line) {
			t.Errorf("kernels/product.cu has no line %q", line)
		}
		if most := 227 << 10; x.shared() > most {
			t.Errorf("%s takes %d bytes of shared memory, at most %d are there", x.name, x.shared(), most)
		}
	}
}

func TestBuild_keepsWhatItCompiled(t *testing.T) {
	compiler(t)
	dir := filepath.Join(t.TempDir(), "kernels")
	first, err := build(os.Getenv("STEADY_NVRTC"), "sm_80", BF16, dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v, want one", files, err)
	}
	if err := os.WriteFile(files[0], []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		arch string
		p    Precision
		kept bool
	}{{"sm_80", BF16, true}, {"sm_90", BF16, false}, {"sm_80", Float32, false}} {
		code, err := build(os.Getenv("STEADY_NVRTC"), tt.arch, tt.p, dir)
		if err != nil || (string(code) == "kept") != tt.kept || len(code) == len(first) && !tt.kept && bytes.Equal(code, first) {
			t.Errorf("%s %s: %d bytes, %v; taken from the folder: want %v", tt.arch, tt.p, len(code), err, tt.kept)
		}
	}
}
