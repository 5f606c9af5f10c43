//go:build cuda

package cudart

import (
	"fmt"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Compiler is NVRTC: CUDA C++ to code for a GPU. It needs no GPU and no driver.
type Compiler struct {
	// Path is the file; Major and Minor are its version.
	Path         string
	Major, Minor int

	create, destroy, compile, logSize, log, cubinSize, cubin, ptxSize, ptx, message Proc
}

// NewCompiler opens NVRTC as Find does. Errors: NotFound.
func NewCompiler(explicit string) (*Compiler, error) {
	l, err := Find(NVRTC, explicit)
	if err != nil {
		return nil, err
	}
	c := &Compiler{Path: l.Path}
	var version Proc
	err = l.procs(map[string]*Proc{
		"nvrtcVersion": &version, "nvrtcCreateProgram": &c.create, "nvrtcDestroyProgram": &c.destroy, "nvrtcCompileProgram": &c.compile,
		"nvrtcGetProgramLogSize": &c.logSize, "nvrtcGetProgramLog": &c.log, "nvrtcGetCUBINSize": &c.cubinSize, "nvrtcGetCUBIN": &c.cubin,
		"nvrtcGetPTXSize": &c.ptxSize, "nvrtcGetPTX": &c.ptx, "nvrtcGetErrorString": &c.message,
	})
	if err != nil {
		return nil, err
	}
	v := NewMemory(8)
	defer v.Free()
	if err := c.check("nvrtcVersion", version.Call(v.Addr(), v.Addr()+4)); err != nil {
		return nil, err
	}
	c.Major, c.Minor = int(v.Int32(0)), int(v.Int32(1))
	return c, nil
}

func (c *Compiler) check(what string, code int) error {
	if code == 0 {
		return nil
	}
	return fault.New(fault.Internal, "cudart.Compiler", "%s: %s", what, c.message.callString(uintptr(code)))
}

// Version is for cache keys and messages.
func (c *Compiler) Version() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// Compile compiles one source for arch: "sm_90" gives a cubin, "compute_80" PTX. name appears in messages. Errors: Internal with the compiler's messages.
func (c *Compiler) Compile(name, source, arch string, defines ...string) ([]byte, error) {
	src, label := cString(source), cString(name)
	defer src.Free()
	defer label.Free()
	program := NewMemory(8)
	defer program.Free()
	if err := c.check("nvrtcCreateProgram", c.create.Call(program.Addr(), src.Addr(), label.Addr(), 0, 0, 0)); err != nil {
		return nil, err
	}
	defer c.destroy.Call(program.Addr())
	options := []string{"--gpu-architecture=" + arch, "-default-device", "--fmad=true", "--std=c++14"}
	for _, d := range defines {
		options = append(options, "-D"+d)
	}
	list := NewMemory(8 * len(options))
	defer list.Free()
	for i, o := range options {
		m := cString(o)
		defer m.Free()
		list.SetWord(i, m.Addr())
	}
	if code := c.compile.Call(program.Word(0), uintptr(len(options)), list.Addr()); code != 0 {
		text, err := c.output(program, c.logSize, c.log)
		if err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Internal, "cudart.Compile", "%s for %s with NVRTC %s: %s\n%s", name, arch, c.Version(),
			c.message.callString(uintptr(code)), strings.TrimRight(string(text), "\x00\n"))
	}
	if strings.HasPrefix(arch, "sm_") {
		return c.output(program, c.cubinSize, c.cubin)
	}
	return c.output(program, c.ptxSize, c.ptx)
}

// output reads one of a program's results.
func (c *Compiler) output(program Memory, size, get Proc) ([]byte, error) {
	n := NewMemory(8)
	defer n.Free()
	if err := c.check("size", size.Call(program.Word(0), n.Addr())); err != nil {
		return nil, err
	}
	buf := NewMemory(int(n.Word(0)))
	defer buf.Free()
	if err := c.check("result", get.Call(program.Word(0), buf.Addr())); err != nil {
		return nil, err
	}
	return append([]byte{}, buf.Bytes(int(n.Word(0)))...), nil
}
