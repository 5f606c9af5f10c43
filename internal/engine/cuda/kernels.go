//go:build cuda

package cuda

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/fault"
)

//go:embed kernels/*.cu
var kernelFiles embed.FS

// kernelOrder is the order in which the sources are joined.
var kernelOrder = []string{"prelude.cu", "layer.cu", "attention.cu", "decode.cu", "gemm.cu", "sample.cu", "fill.cu", "train.cu", "fast.cu"}

// source is the text of all kernels but those of products, which are a module of their own.
func source() string { return joined(kernelOrder) }

func joined(names []string) string {
	var b strings.Builder
	for _, name := range names {
		data, err := kernelFiles.ReadFile("kernels/" + name)
		if err != nil {
			panic("cuda: " + err.Error()) // the list above and the folder disagree
		}
		fmt.Fprintf(&b, "#line 1 %q\n%s", name, data)
	}
	return b.String()
}

// Precision is the type of weights, cache and the inputs of matrix products.
type Precision string

// The precisions.
const (
	BF16    Precision = "bf16"
	Float32 Precision = "float32"
)

func (p Precision) define() string {
	if p == BF16 {
		return "STEADY_BF16=1"
	}
	return "STEADY_BF16=0"
}

// elemBytes is the size of a stored element.
func (p Precision) elemBytes() int {
	if p == BF16 {
		return 2
	}
	return 4
}

// build returns the code of all kernels for arch, from the folder dir if it is there. An empty dir keeps nothing.
func build(nvrtc, arch string, p Precision, dir string) ([]byte, error) {
	c, err := cudart.NewCompiler(nvrtc)
	if err != nil {
		return nil, err
	}
	return compiled(c, source(), arch, p, dir)
}

// compiled returns the code of a source for arch, from the folder dir if it is there.
func compiled(c *cudart.Compiler, src, arch string, p Precision, dir string) ([]byte, error) {
	sum := sha256.Sum256([]byte(strings.Join([]string{c.Version(), arch, p.define(), src}, "\x00")))
	name := filepath.Join(dir, "kernels-"+hex.EncodeToString(sum[:16])+".cubin")
	if dir != "" {
		if code, err := os.ReadFile(name); err == nil {
			return code, nil
		}
	}
	code, err := c.Compile("kernels.cu", src, arch, p.define())
	if err != nil || dir == "" {
		return code, err
	}
	if err := keep(dir, name, code); err != nil {
		return nil, fault.New(fault.Infrastructure, "cuda.build", "cannot keep compiled kernels: %w", err).WithHint("choose a writable folder, or none")
	}
	return code, nil
}

// keep writes a file that is either whole or absent.
func keep(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "compiling-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// kernels are the functions of a loaded module, by name.
type kernels struct {
	module                                        *cudart.Module
	embed, addnorm, heads, silumul, gemm, fill    *cudart.Function
	samplemax, samplebound, samplesum, samplepick *cudart.Function
	// Tensor cores: of BF16 alone.
	attendsplit, attendtile                           *cudart.Function
	attend2, attend4, attend8, attendwide, attendjoin *cudart.Function
	// Of the trainer alone.
	add, narrow, gemmgrad, normgrad, columnpart, columnsum, silugrad, headsgrad, attendgradq, attendgradkv, embedgrad, loss, squares,
	publish, adamw *cudart.Function
}

func load(ctx *cudart.Context, code []byte, p Precision) (*kernels, error) {
	m, err := ctx.LoadModule(code)
	if err != nil {
		return nil, err
	}
	k := &kernels{module: m}
	for name, f := range map[string]**cudart.Function{
		"embed": &k.embed, "addnorm": &k.addnorm, "heads": &k.heads, "silumul": &k.silumul, "attend2": &k.attend2, "attend4": &k.attend4, "attend8": &k.attend8, "attendwide": &k.attendwide, "attendjoin": &k.attendjoin, "gemm": &k.gemm, "fill": &k.fill,
		"samplemax": &k.samplemax, "samplebound": &k.samplebound, "samplesum": &k.samplesum, "samplepick": &k.samplepick,
		"add": &k.add, "narrow": &k.narrow, "gemmgrad": &k.gemmgrad, "normgrad": &k.normgrad, "columnpart": &k.columnpart, "columnsum": &k.columnsum,
		"silugrad": &k.silugrad, "headsgrad": &k.headsgrad, "attendgradq": &k.attendgradq, "attendgradkv": &k.attendgradkv, "embedgrad": &k.embedgrad,
		"loss": &k.loss, "squares": &k.squares, "publish": &k.publish, "adamw": &k.adamw,
	} {
		if *f, err = m.Function(name, 0); err != nil {
			return nil, err
		}
	}
	if p != BF16 {
		return k, nil
	}
	for name, f := range map[string]**cudart.Function{
		"attendsplit": &k.attendsplit, "attendtile": &k.attendtile,
	} {
		if *f, err = m.Function(name, 0); err != nil {
			return nil, err
		}
	}
	return k, nil
}
