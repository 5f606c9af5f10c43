package main

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/steadyrl/steady/internal/dataset"
)

// A limit that a person set stays, and so does a lower one. Not parallel: the limit is the process's.
func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	for name, c := range map[string]struct {
		env          string
		before, want int64
	}{
		"none": {"", 8 << 30, dataset.MemoryLimit}, "lower": {"", 300 << 20, 300 << 20}, "in the environment": {"8GiB", 8 << 30, 8 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t, "GOMEMLIMIT")
			if c.env != "" {
				t.Setenv("GOMEMLIMIT", c.env)
			}
			debug.SetMemoryLimit(c.before)
			restore := limitMemory()
			got := debug.SetMemoryLimit(-1)
			restore()
			if after := debug.SetMemoryLimit(-1); got != c.want || after != c.before {
				t.Errorf("%d, and %d afterwards; want %d and %d", got, after, c.want, c.before)
			}
		})
	}
}

// unset removes a variable for the time of a test.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // puts the old value back afterwards
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
