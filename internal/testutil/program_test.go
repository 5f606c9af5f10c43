package testutil_test

import (
	"fmt"
	"os/exec"
	"sync"
	"testing"

	"github.com/steadyrl/steady/internal/testutil"
)

// Programs that are written and started by many goroutines at once all start: none is "busy".
func TestWriteScript_startsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 20 {
				path := testutil.WriteScript(t, dir, fmt.Sprintf("p%d-%d", worker, i), "exit 0")
				if err := exec.CommandContext(t.Context(), path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
