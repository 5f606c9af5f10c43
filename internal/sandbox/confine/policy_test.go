//go:build amd64

package confine

import (
	"testing"

	"golang.org/x/sys/unix"
)

// interpret runs a filter as the kernel does on one call and returns the action.
func interpret(t *testing.T, prog []unix.SockFilter, arch, nr uint32, args [6]uint64) Action {
	t.Helper()
	data := [16]uint32{nr, arch}
	for i, a := range args {
		data[4+2*i], data[5+2*i] = uint32(a), uint32(a>>32)
	}
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		taken := false
		switch in.Code {
		case load:
			acc = data[in.K/4]
			continue
		case and:
			acc &= in.K
			continue
		case ret:
			return Action(in.K)
		case jeq:
			taken = acc == in.K
		case jge:
			taken = acc >= in.K
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
		if taken {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

const pid = 4321

// open reports whether a policy may let call nr through with these arguments. It is written apart from the policy,
// call by call, from the kernel's meaning of the arguments.
func open(nr uint32, a [6]uint64) bool {
	switch nr {
	case unix.SYS_OPENAT:
		return a[2]&(3|0o100|0o1000|0o2000|0o20000000) == 0
	case unix.SYS_OPEN:
		return a[1]&(3|0o100|0o1000|0o2000|0o20000000) == 0
	case unix.SYS_CLONE:
		return a[0] == 0x3d0f00
	case unix.SYS_EXECVEAT:
		return a[0] == 1000 && a[4] == 0x1000
	case unix.SYS_CLOSE_RANGE:
		return a[2] == 0 || a[2] == 4
	case unix.SYS_KILL, unix.SYS_TGKILL:
		return a[0] == pid
	case unix.SYS_PRLIMIT64:
		return a[0] == 0 && (a[2] == 0 || a[1] == 3)
	case unix.SYS_SETRLIMIT:
		return a[0] == 3
	case unix.SYS_ARCH_PRCTL:
		return a[0] == 0x1002
	case unix.SYS_SOCKETPAIR:
		return a[0] == 1 && a[1]&15 == 1
	case unix.SYS_SENDTO:
		return a[4] == 0 && uint32(a[3])&^(0x4000|0x40) == 0
	case unix.SYS_RECVFROM:
		return uint32(a[3])&^(0x40|2|0x100) == 0
	case unix.SYS_FUTEX:
		switch uint32(a[1]) &^ (128 | 256) {
		case 0, 1, 3, 4, 5, 9, 10:
			return true
		}
		return false
	case unix.SYS_IOCTL:
		switch uint32(a[1]) {
		case 0x5401, 0x541b, 0x5451, 0x5450, 0x5413, 0x5421:
			return true
		}
		return false
	case unix.SYS_FCNTL:
		switch uint32(a[1]) {
		case 1, 2, 3, 0, 1030, 1034:
			return true
		}
		return false
	}
	for _, c := range allowed {
		if c.nr == nr {
			return true
		}
	}
	return false
}

func TestFilter_letsThroughExactlyThePolicy(t *testing.T) {
	t.Parallel()
	prog := Assemble(PolicyFor(pid))
	if len(prog) > 4096 {
		t.Fatalf("the filter has %d instructions, the kernel takes 4096", len(prog))
	}
	values := []uint64{0x3d0f00, 0x3d0f11, 1000, 0x1000, 0x1002, pid, 0x5401, 0x541b, 0x5421, 0x541c, 1030, 1034, 0o20000000, 0o20200000, 1 << 31}
	for v := range uint64(600) {
		values = append(values, v)
	}
	for i, n := 0, len(values); i < n; i++ {
		values = append(values, values[i]|1<<32, values[i]|1<<63)
	}
	let := 0
	check := func(nr uint32, args [6]uint64) {
		got := interpret(t, prog, unix.AUDIT_ARCH_X86_64, nr, args) == Allow
		if want := open(nr, args); got != want {
			t.Errorf("call %d with %#x: allowed = %v, want %v", nr, args, got, want)
		}
		if got {
			let++
		}
	}
	conditions := map[uint32]bool{}
	for _, r := range PolicyFor(pid).Rules {
		conditions[r.Nr] = len(r.When) > 0
	}
	for nr := range uint32(600) {
		for _, v := range values {
			if !conditions[nr] {
				check(nr, [6]uint64{v, v, v, v, v, v})
				continue
			}
			for arg := range 6 {
				args := [6]uint64{}
				args[arg] = v
				check(nr, args)
			}
			check(nr, [6]uint64{v, v, v, v, v, v})
			check(nr, [6]uint64{1000, 0, 0, 0, v})
			check(nr, [6]uint64{v, 0, 0, 0, 0x1000})
			check(nr, [6]uint64{1, v, 1, 1, 1})
			check(nr, [6]uint64{0, v, 7})
		}
		if t.Failed() {
			return
		}
	}
	if let == 0 {
		t.Error("nothing was ever let through")
	}
}

func TestFilter_otherABIsKill(t *testing.T) {
	t.Parallel()
	prog := Assemble(PolicyFor(pid))
	for nr := range uint32(600) {
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, 0} {
			if got := interpret(t, prog, arch, nr, [6]uint64{}); got != Kill {
				t.Errorf("architecture %#x, call %d: %#x, want kill", arch, nr, got)
			}
		}
		if got := interpret(t, prog, unix.AUDIT_ARCH_X86_64, nr|x32Bit, [6]uint64{}); got != Kill {
			t.Errorf("x32 call %d: %#x, want kill", nr, got)
		}
	}
	if got := interpret(t, prog, unix.AUDIT_ARCH_X86_64, ^uint32(0), [6]uint64{}); got != Kill {
		t.Errorf("call -1: %#x, want kill", got)
	}
}

func TestPolicy_eachCallHasOneRuleAndShortBlocks(t *testing.T) {
	t.Parallel()
	seen := map[uint32]string{}
	for _, r := range PolicyFor(pid).Rules {
		if other, ok := seen[r.Nr]; ok {
			t.Errorf("%s and %s are the same call", r.Name, other)
		}
		seen[r.Nr] = r.Name
		if n := len(block(r)); n > 255 {
			t.Errorf("%s takes %d instructions, a jump reaches 255", r.Name, n)
		}
		if len(r.When) > 0 == (r.Do != 0) {
			t.Errorf("%s must have either conditions or an action", r.Name)
		}
	}
	for _, c := range killed {
		if got := interpret(t, Assemble(PolicyFor(pid)), unix.AUDIT_ARCH_X86_64, c.nr, [6]uint64{}); got != Kill {
			t.Errorf("%s: %#x, want kill", c.name, got)
		}
	}
}

func TestHandled_growsWithTheABI(t *testing.T) {
	t.Parallel()
	for abi, want := range map[int]unix.LandlockRulesetAttr{
		1:  {Handled_access_fs: 0x1fff},
		2:  {Handled_access_fs: 0x3fff},
		3:  {Handled_access_fs: 0x7fff},
		4:  {Handled_access_fs: 0x7fff, Handled_access_net: 3},
		5:  {Handled_access_fs: 0xffff, Handled_access_net: 3},
		7:  {Handled_access_fs: 0xffff, Handled_access_net: 3, Scoped: 3},
		10: {Handled_access_fs: 0x1ffff, Handled_access_net: 15, Scoped: 3},
	} {
		if got := handled(abi); got != want {
			t.Errorf("ABI %d: handled %+v, want %+v", abi, got, want)
		}
	}
}
