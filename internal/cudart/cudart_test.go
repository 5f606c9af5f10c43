//go:build cuda

package cudart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// The header and the stand-in name the same functions: one that is declared and not defined would break a build somewhere else.
func TestStandIn_definesWhatTheHeaderDeclares(t *testing.T) {
	t.Parallel()
	header, err := os.ReadFile("include/cuda.h")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadFile("standin/entries.h")
	if err != nil {
		t.Fatal(err)
	}
	versioned := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define (cu\w+) (\w+)$`).FindAllStringSubmatch(string(header), -1) {
		versioned[m[1]] = m[2]
	}
	var declared, defined []string
	for _, m := range regexp.MustCompile(`(?m)^CUresult (cu\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		name := m[1]
		if v, ok := versioned[name]; ok {
			name = v
		}
		if name != "cuInit" { // the stand-in's own
			declared = append(declared, name)
		}
	}
	for _, m := range regexp.MustCompile(`ENTRY\((\w+)\)`).FindAllStringSubmatch(string(entries), -1) {
		defined = append(defined, m[1])
	}
	slices.Sort(declared)
	slices.Sort(defined)
	if len(declared) < 150 || !slices.Equal(declared, defined) {
		t.Errorf("declared %d: %v\ndefined %d: %v", len(declared), declared, len(defined), defined)
	}
}

// Without a driver the binding answers with errors; it never ends the process. With one, Load finds it.
func TestLoad_withoutADriver(t *testing.T) {
	if _, err := Devices(); err == nil {
		t.Error("Devices before Load: no error")
	}
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := Load(missing); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), missing) || fault.HintOf(err) == "" {
		t.Errorf("Load of a missing file: %v, want NotFound, its name and a hint", err)
	}
	if err := os.WriteFile(missing, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(missing); !fault.Is(err, fault.NotFound) {
		t.Errorf("Load of a text: %v, want NotFound", err)
	}
	if err := Load("libc.so.6"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "cuInit") {
		t.Errorf("Load of another library: %v, want NotFound that names cuInit", err)
	}
	if _, err := Devices(); err == nil {
		t.Error("Devices after failed loads: no error")
	}
}

// The trampoline passes 16 words in order: printf of the C library shows them.
func TestCall_passesEveryArgument(t *testing.T) {
	t.Parallel()
	libc, err := Open("libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	printf, err := libc.Proc("snprintf")
	if err != nil {
		t.Fatal(err)
	}
	buf, format := NewMemory(128), cString(strings.Repeat("%ld ", 13))
	defer buf.Free()
	defer format.Free()
	words := []uintptr{buf.Addr(), 128, format.Addr()}
	for i := range 13 {
		words = append(words, uintptr(100+i))
	}
	const want = "100 101 102 103 104 105 106 107 108 109 110 111 112 "
	if n := printf.Call(words...); n != len(want) || string(buf.Bytes(n)) != want {
		t.Errorf("printf of 16 arguments wrote %q", buf.Bytes(64))
	}
	if _, err := libc.Proc("no_such_function"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing function: %v, want NotFound", err)
	}
}

func TestFind_anExplicitFileIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "libnvrtc.so")
	for _, open := range []func() error{
		func() error { _, err := NewCompiler(missing); return err },
		func() error { _, _, err := BLASVersion(missing); return err },
		func() error { _, err := Find(CUDNN, missing); return err },
	} {
		if err := open(); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), missing) {
			t.Errorf("%v, want NotFound with the name of the file", err)
		}
	}
	if _, err := NewCompiler("libc.so.6"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a library that is no compiler: %v, want NotFound", err)
	}
}

// On a machine with a GPU: its UUID leads to its monitor, which has the events of a broken card registered, counts memory errors, and reports nothing of a sound one.
func TestMonitor_watchesTheCard(t *testing.T) {
	if err := Load(os.Getenv("STEADY_CUDA_DRIVER")); err != nil {
		t.Skip(err)
	}
	uuid, err := UUID(0)
	if err != nil {
		t.Fatal(err)
	}
	driver, gpus, err := ReadHealth()
	if err != nil || !slices.ContainsFunc(gpus, func(g Health) bool { return g.UUID == uuid }) {
		t.Fatalf("NVML lists %+v, %v; want one with UUID %s", gpus, err, uuid)
	}
	m, err := NewMonitor(uuid)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	n, err := m.Uncorrected()
	if err != nil || n > 0 {
		t.Errorf("%d uncorrected memory errors, %v", n, err)
	}
	e, happened, err := m.Wait(time.Millisecond)
	if err != nil || happened {
		t.Errorf("an event %+v, %v; want none", e, err)
	}
	t.Logf("%s, driver %s: events registered: %v, uncorrected memory errors: %d (-1: not reported)", uuid, driver, m.Events, n)
}
