package workflows_test

import (
	"path/filepath"
	"testing"
)

// Histories of a finished demo run, one of each workflow and of the step loop one that continued as new, and one that
// lost its trainer; those named `changed` are of the build with staleness policies and messages that change settings, those named `rolled_back` and
// `lineage` of one run with a rollback, and `cancel_early` of one with that policy. Those named `chain` are
// the runs of one TrainRun that continued as new after each of two rollbacks, recorded on a server that suggests it from 30 events on. A change that makes one
// of them fail breaks runs that are open while workers are upgraded: gate it by a version, and add a history.
func TestReplay_storedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d histories, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			if err := replay(history(t, f)); err != nil {
				t.Error(err)
			}
		})
	}
}
