package crashpoint

import (
	"os"
	"runtime"
	"syscall"
)

// stop stops the process. The signal is for the calling thread, so that it goes no step further before the stop; another thread might
// take a signal for the process later.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
}
