package report

import (
	"testing"

	"github.com/steadyrl/steady/internal/record"
)

// What a person asked for is no failure, in the tile, the summary and the time line alike.
func TestFaults_commandsAreNeitherFailuresNorRecoveries(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]struct {
		failures, recovered int
		tone                string
	}{
		"setting": {0, 0, ""}, "rolled_back": {0, 0, ""},
		"reacquired": {0, 1, "good"}, "restored": {0, 1, "good"},
		"Lost": {1, 0, "bad"}, "alarm": {1, 0, "bad"}, "stalled": {1, 0, "bad"}, "a kind of another build": {1, 0, "bad"},
	} {
		d := &Data{Events: []record.Event{{Time: "2026-03-01T09:00:00Z", Kind: kind, Where: "here"}}}
		if f, r := d.faults(); f != want.failures || r != want.recovered {
			t.Errorf("%s: %d failures, %d recoveries, want %+v", kind, f, r, want)
		}
		if list, _ := events(d); len(list) != 1 || list[0].Tone != want.tone {
			t.Errorf("%s: %+v, want the tone %q", kind, list, want.tone)
		}
	}
}
