package testutil

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockCode replaces the function through which a process reads clocks without a system call. It makes the system call, and adds
// the seconds that follow the code to what CLOCK_REALTIME says. Other clocks, and so timers and durations, go on as before.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: 0 is CLOCK_REALTIME
	0x75, 0x0a, // jne to the return
	0x48, 0x8b, 0x0d, 0x06, 0x00, 0x00, 0x00, // mov rcx, [rip+6]: the seconds
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3,       // ret
	0x90, 0x90, // so that the seconds are aligned
}

// SetClock sets what a running process reads as the time of day by d in whole seconds, backwards if d is negative; calls add up. The
// kernel gives a process its own copy of the page with the function that reads clocks as soon as it is written to, as debuggers do for
// breakpoints, so that no other process is concerned. Programs that the process starts afterwards have the true time, and so has the
// file system. Errors: this machine or its settings do not allow it (it needs Linux on amd64 and the right to trace the process).
func SetClock(pid int, d time.Duration) error {
	seconds := int64(d / time.Second)
	page, err := vdsoOf(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, page.size)
	if _, err := mem.ReadAt(image, page.start); err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	at, size, err := clockFunction(image)
	if err != nil {
		return err
	}
	patch := len(clockCode) + 8
	if size < uint64(patch) {
		return fmt.Errorf("%d bytes for a clock function of %d", size, patch)
	}
	code := image[at:][:patch]
	if bytes.HasPrefix(code, clockCode) {
		seconds += int64(binary.LittleEndian.Uint64(code[len(clockCode):])) //nolint:gosec // written below
	}
	code = binary.LittleEndian.AppendUint64(bytes.Clone(clockCode), uint64(seconds)) //nolint:gosec // read above
	first := page.start + int64(at)                                                  //nolint:gosec // of an image of some pages
	return whileOutside(pid, first, first+int64(size), func() error {                //nolint:gosec // the same
		if _, err := mem.WriteAt(code, first); err != nil {
			return fmt.Errorf("write the vDSO: %w", err)
		}
		return nil
	})
}

type mapping struct{ start, size int64 }

func vdsoOf(pid int) (mapping, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return mapping{}, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			var start, end int64
			if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
				return mapping{}, err
			}
			return mapping{start, end - start}, nil
		}
	}
	return mapping{}, errors.New("the process has no vDSO")
}

// clockFunction finds the function that Go and C read clocks with.
func clockFunction(image []byte) (at, size uint64, err error) {
	if runtime.GOARCH != "amd64" {
		return 0, 0, fmt.Errorf("no clock function for %s", runtime.GOARCH)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Value+s.Size <= uint64(len(image)) {
			return s.Value, s.Size, nil
		}
	}
	return 0, 0, errors.New("the vDSO has no __vdso_clock_gettime")
}

// whileOutside calls do while the process is stopped and none of its threads is between two addresses.
func whileOutside(pid int, from, to int64, do func() error) error {
	for range 1000 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		outside, err := stoppedOutside(pid, from, to)
		if err == nil && outside {
			err = do()
		}
		if e := syscall.Kill(pid, syscall.SIGCONT); err == nil {
			err = e
		}
		if outside || err != nil {
			return err
		}
	}
	return errors.New("some thread always reads the clock")
}

// last is the last word of a text.
func last(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, ' ')+1:]
}

// stoppedOutside waits until all threads of a process have stopped, and reports whether none is between two addresses.
func stoppedOutside(pid int, from, to int64) (bool, error) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) == 0 { // the pattern is good
			return false, fmt.Errorf("process %d has no threads", pid)
		}
		outside, stopped := true, true
		for _, task := range tasks {
			// "running", or numbers of which the last is the program counter; nothing of a thread that has just ended.
			text, _ := os.ReadFile(filepath.Join(task, "syscall"))
			pc, err := strconv.ParseInt(string(last(text)), 0, 64)
			stat, _ := os.ReadFile(filepath.Join(task, "stat"))
			_, state, _ := bytes.Cut(stat, []byte(") "))
			if err != nil || !bytes.HasPrefix(state, []byte("T")) {
				stopped = false
				break
			}
			outside = outside && (pc < from || pc >= to)
		}
		if stopped {
			return outside, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("process %d does not stop", pid)
		}
		<-time.After(time.Millisecond)
	}
}
