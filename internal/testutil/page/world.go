package page

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Mount gives a folder the entries of the repository's root as links, but for what is built and for runs, so that commands of a page find the files that they
// name and write nothing into the repository.
func Mount(t *testing.T, root, dir string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains([]string{"bin", ".git", ".steady", ".tools", "report.html"}, e.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TemporalFlags are the commands of the Temporal command line that pages may use, with the flags that they may have; each takes a value.
func TemporalFlags() map[string][]string {
	one := []string{"--workflow-id", "-w", "--run-id", "-r", "--address", "-o"}
	with := func(more ...string) []string { return append(slices.Clone(one), more...) }
	return map[string][]string{
		"workflow start":          {"--workflow-id", "-w", "--type", "--task-queue", "--input-file", "--input", "--address", "-o"},
		"workflow query":          with("--name", "--input"),
		"workflow update execute": with("--name", "--input"),
		"workflow signal":         with("--name", "--input"),
		"workflow cancel":         with("--reason"),
		"workflow terminate":      with("--reason"),
		"workflow pause":          with("--reason"),
		"workflow unpause":        with("--reason"),
		"workflow reset":          with("--event-id", "--type", "--reason"),
		"workflow describe":       one,
		"workflow result":         one,
		"workflow show":           one,
		"workflow list":           {"--query", "-q", "--limit", "--address", "-o"},
	}
}
