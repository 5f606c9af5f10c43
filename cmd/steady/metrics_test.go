package main

import (
	"bytes"
	"encoding/csv"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/scalars"
	"github.com/steadyrl/steady/internal/transcript/transcripttest"
)

func TestMetricsExport_writesEveryFormat(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	transcripttest.Write(t, data)
	code, text, errOut := steady(t, "metrics", "export", "r", "--data", data)
	if code != exitDone || errOut != "" {
		t.Fatalf("exit %d, errors %q", code, errOut)
	}
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) < 2 || len(lines[0]) != len(scalars.Columns()) {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, tt := range []struct {
		format, out, file string
		begin             string
	}{
		{"csv", filepath.Join(out, "steps.csv"), filepath.Join(out, "steps.csv"), "run,lineage,step,"},
		{"parquet", filepath.Join(out, "steps.parquet"), filepath.Join(out, "steps.parquet"), "PAR1"},
		{"tensorboard", filepath.Join(out, "logdir"), filepath.Join(out, "logdir", "events.out.tfevents.*.r.l0"), ""},
	} {
		for range 2 { // the second time the file is replaced
			code, text, errOut := steady(t, "metrics", "export", "r", "--data", data, "--format", tt.format, "--out", tt.out)
			if code != exitDone || errOut != "" || !strings.Contains(text, "wrote "+out) {
				t.Errorf("%s: exit %d, output %q, errors %q", tt.format, code, text, errOut)
			}
		}
		found, err := filepath.Glob(tt.file)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: files %v, %v; want one", tt.format, found, err)
			continue
		}
		got, err := os.ReadFile(found[0])
		if err != nil || !bytes.HasPrefix(got, []byte(tt.begin)) || len(got) < 100 {
			t.Errorf("%s: %d bytes that begin with %.20q, %v", tt.format, len(got), got, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(out, "*", ".tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for args, want := range map[string]string{
		"export r --format tensorboard":            "--out",
		"export r --format xml":                    "--format",
		"export none":                              `no run "none"`,
		"export r --lineage l7":                    "l7",
		"export r --out " + out + "/no/such/f.csv": "--out",
	} {
		code, text, errOut := steady(t, append(append([]string{"metrics"}, strings.Fields(args)...), "--data", data)...)
		if code != exitUsage || text != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit %d, output %q, errors %q; want %q", args, code, text, errOut, want)
		}
	}
}

func TestMetricsColumns_explainsEachColumn(t *testing.T) {
	t.Parallel()
	code, text, errOut := steady(t, "metrics", "columns")
	if code != exitDone || errOut != "" || strings.Count(text, "\n") != len(scalars.Columns()) {
		t.Errorf("exit %d, %d lines, errors %q", code, strings.Count(text, "\n"), errOut)
	}
}

// An address that cannot be used is said before anything starts, by every command that serves metrics.
func TestMetrics_aBadAddressIsSaidFirst(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct{ command, address, want string }{
		{"worker", "9464", "--metrics"},
		{"dev", "here", "--metrics"},
		{"demo", "a:b:c", "--metrics"},
		{"worker", taken.Addr().String(), "address already in use"},
		{"worker", "127.0.0.1:70000", "--metrics 127.0.0.1:70000"},
	} {
		code, _, errOut := steady(t, tt.command, "--data", t.TempDir(), "--metrics", tt.address)
		if code != exitUsage || !strings.Contains(errOut, tt.want) || !strings.Contains(errOut, "try:") {
			t.Errorf("%s --metrics %s: exit %d, errors %q; want exit %d with %q and a hint", tt.command, tt.address, code, errOut, exitUsage, tt.want)
		}
	}
}

func TestConsoleFormat_textIsForTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		format string
		want   obs.Format
	}{{"auto", obs.JSON}, {"json", obs.JSON}, {"text", obs.Text}} {
		if got := consoleFormat(tt.format, file); got != tt.want {
			t.Errorf("%s into a file: got %v, want %v", tt.format, got, tt.want)
		}
	}
	if isTerminal(&bytes.Buffer{}) {
		t.Error("a buffer is a terminal")
	}
	if tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		defer tty.Close()
		if !isTerminal(tty) || consoleFormat("auto", tty) != obs.Text {
			t.Error("a terminal is none")
		}
	}
}
