package dataset

import (
	"os"
	"runtime/debug"
)

// MemoryLimit is the soft limit on Go's memory, in bytes, under which a shard of 200 MB is prepared. What is alive is less, even if the whole
// shard (470 MB of cells) is one row group of one page a column; without a limit the garbage beside it may be as large.
const MemoryLimit = 700 << 20

// LimitMemory sets MemoryLimit for this process, unless its environment has a limit (GOMEMLIMIT) or another one was set. The function
// that it returns puts back what was there before.
func LimitMemory() (restore func()) {
	if _, ok := os.LookupEnv("GOMEMLIMIT"); ok {
		return func() {}
	}
	before := debug.SetMemoryLimit(MemoryLimit)
	if before < MemoryLimit {
		debug.SetMemoryLimit(before)
	}
	return func() { debug.SetMemoryLimit(before) }
}
