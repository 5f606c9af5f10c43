package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
)

// stored reads the histories of the rolled back run that the replay tests have; those of groups are not stored.
func stored(t *testing.T) source {
	files, err := filepath.Glob(filepath.Join("..", "..", "workflows", "testdata", "histories", "*_*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	byRun, newest := map[string][]*historypb.HistoryEvent{}, map[string][]*historypb.HistoryEvent{}
	for _, name := range files {
		if base := filepath.Base(name); !strings.Contains(base, "rolled_back") && !strings.Contains(base, "lineage") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		h, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		a := h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
		byRun[a.GetOriginalExecutionRunId()] = h.GetEvents()
		newest[a.GetWorkflowId()] = h.GetEvents()
	}
	return func(at execution) ([]*historypb.HistoryEvent, error) {
		switch {
		case at.run == "":
			return newest[at.id], nil
		case strings.Contains(at.id, "/group/") || strings.Contains(at.id, "/validate/"):
			return nil, nil
		case byRun[at.run] == nil:
			return nil, fmt.Errorf("no history of %s, run %s", at.id, at.run)
		}
		return byRun[at.run], nil
	}
}

// Every lineage is told of, each by itself: the time between two lineages is no step.
func TestReport_everyLineage(t *testing.T) {
	t.Parallel()
	for lineage, want := range map[string][]string{
		"":   {"lineage l0: 2 steps", "lineage l1: "},
		"l0": {"lineage l0: 2 steps"},
		"l1": {"lineage l1: "},
	} {
		var b bytes.Buffer
		if err := report(&b, stored(t), "hist", lineage); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "lineage "); got != len(want) {
			t.Errorf("%q: %d lineages, want %d:\n%s", lineage, got, len(want), b.String())
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%q: want %q in:\n%s", lineage, w, b.String())
			}
		}
	}
	var b bytes.Buffer
	if err := report(&b, stored(t), "hist", "l7"); err == nil || !strings.Contains(err.Error(), "no lineage l7") {
		t.Errorf("an unknown lineage: %v", err)
	}
	if err := report(&b, stored(t), "other", ""); err == nil || !strings.Contains(err.Error(), "no training loop") {
		t.Errorf("an unknown run: %v", err)
	}
}
