package confine

import "golang.org/x/sys/unix"

// Action is what the kernel does with a system call: the return value of the filter.
type Action uint32

// Actions. Errno builds the third kind.
const (
	Allow Action = unix.SECCOMP_RET_ALLOW
	Kill  Action = unix.SECCOMP_RET_KILL_PROCESS
)

// Errno is the action that refuses a call with error number e.
func Errno(e unix.Errno) Action { return Action(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// Cond compares one argument: argument & Mask == Value, on all 64 bits.
type Cond struct {
	Arg         int // 0-5
	Mask, Value uint64
}

// Rule is the decision about one system call. The call is allowed if it has no alternatives in When, or if all
// conditions of one alternative hold; Else is what happens otherwise.
type Rule struct {
	Name string
	Nr   uint32
	When [][]Cond
	Else Action // used with When
	Do   Action // used without When
}

// Policy is a whole filter.
type Policy struct {
	Arch    uint32
	Rules   []Rule
	Default Action
}

const (
	offNr   = 0 // offsets in struct seccomp_data
	offArch = 4
	offArgs = 16
	// x32Bit marks calls of the x32 ABI, which have numbers of their own.
	x32Bit = 0x40000000
)

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(code uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
}

const (
	load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	and  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	ret  = unix.BPF_RET | unix.BPF_K
)

// Assemble turns p into a program. Every block of a rule ends in a return, so that the accumulator holds the call number
// wherever the next rule is tested. Conditions of one alternative must fit into the 255 instructions of a jump.
func Assemble(p Policy) []unix.SockFilter {
	prog := make([]unix.SockFilter, 0, 512)
	prog = append(prog,
		stmt(load, offArch), jump(jeq, p.Arch, 1, 0), stmt(ret, uint32(Kill)),
		stmt(load, offNr), jump(jge, x32Bit, 0, 1), stmt(ret, uint32(Kill)))
	for _, r := range p.Rules {
		body := block(r)
		prog = append(prog, jump(jeq, r.Nr, 0, uint8(len(body)))) //nolint:gosec // TestPolicy bounds the blocks
		prog = append(prog, body...)
	}
	return append(prog, stmt(ret, uint32(p.Default)))
}

func block(r Rule) []unix.SockFilter {
	if len(r.When) == 0 {
		return []unix.SockFilter{stmt(ret, uint32(r.Do))}
	}
	var body []unix.SockFilter
	for _, all := range r.When {
		var alt []unix.SockFilter
		for _, c := range all {
			for half := range 2 {
				shift := 32 * half
				//nolint:gosec // the low and the high word are wanted
				mask, value := uint32(c.Mask>>shift), uint32(c.Value>>shift)
				if mask == 0 && value == 0 {
					continue
				}
				alt = append(alt, stmt(load, uint32(offArgs+8*c.Arg+4*half))) //nolint:gosec // 0-5
				if mask != ^uint32(0) {
					alt = append(alt, stmt(and, mask))
				}
				alt = append(alt, jump(jeq, value, 0, 0))
			}
		}
		alt = append(alt, stmt(ret, uint32(Allow)))
		for i := range alt {
			if alt[i].Code == jeq {
				alt[i].Jf = uint8(len(alt) - 1 - i) //nolint:gosec // bounded as above
			}
		}
		body = append(body, alt...)
	}
	return append(body, stmt(ret, uint32(r.Else)))
}
