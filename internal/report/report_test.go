package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/steadyrl/steady/internal/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func load(t *testing.T, y *synthetic) *report.Data {
	t.Helper()
	d, err := report.Load(t.Context(), y.store, y.l)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func render(t *testing.T, d *report.Data) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	cut := func(b []byte) []byte { return b[max(0, at-80):min(len(b), at+160)] }
	t.Errorf("%s differs at byte %d (go test ./internal/report -update rewrites it)\n got: ...%s\nwant: ...%s", name, at, cut(got), cut(want))
}

func TestRender_goldenPageOfAWholeRun(t *testing.T) {
	t.Parallel()
	y := newSynthetic(t, 6, 2)
	y.write()
	d := load(t, y)
	if len(d.Missing) > 0 {
		t.Errorf("missing parts of a whole run: %v", d.Missing)
	}
	golden(t, "whole.html", render(t, d))
}
