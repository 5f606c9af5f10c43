package artifact_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/artifacttest"
	"github.com/steadyrl/steady/internal/fault"
)

// roleVariable makes the test binary play a part of a test in a process of its own; the store's directory follows.
const roleVariable = "STEADY_TEST_ARTIFACT_ROLE"

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(os.Args[len(os.Args)-1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roles are the parts: functions of the store's directory.
var roles = map[string]func(dir string) error{
	"rival": rival,
}

func child(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

func newFiles(t *testing.T) *artifact.Files {
	t.Helper()
	s, err := artifact.NewFiles(filepath.Join(t.TempDir(), "made", "on", "the", "way"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFiles_conformance(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T) artifact.Store { return newFiles(t) })
}

const rivalRounds = 100

// rival waits for a line, then puts rivalRounds objects, half of them with bytes of its own, and says of each if it won.
func rival(dir string) error {
	s, err := artifact.NewFiles(dir)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range rivalRounds {
		data := bytes.Repeat(fmt.Appendf(nil, "round %d ", i), 500)
		if i%2 == 1 {
			data = append(data, fmt.Sprintf("of process %d", os.Getpid())...)
		}
		_, err := s.Put(context.Background(), fmt.Sprintf("race/%03d", i), data)
		switch {
		case err == nil:
			fmt.Println("won")
		case fault.Is(err, fault.Stale):
			fmt.Println("stale")
		default:
			return err
		}
	}
	return nil
}

func TestFiles_twoProcessesPutTheSameNames(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	var won [2][]string
	var outs [2]*bufio.Scanner
	var ins [2]io.WriteCloser
	var cmds [2]*exec.Cmd
	for i := range cmds {
		cmd := child(t, "rival", s.Root())
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[i], ins[i], outs[i] = cmd, in, bufio.NewScanner(out)
		if !outs[i].Scan() || outs[i].Text() != "ready" {
			t.Fatalf("process %d says %q", i, outs[i].Text())
		}
	}
	for _, in := range ins {
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		for outs[i].Scan() {
			won[i] = append(won[i], outs[i].Text())
		}
		if err := cmd.Wait(); err != nil || len(won[i]) != rivalRounds {
			t.Fatalf("process %d: %v after %d rounds: %v", i, err, len(won[i]), won[i])
		}
	}
	for i := range rivalRounds {
		a, b := won[0][i], won[1][i]
		if same := i%2 == 0; same && (a != "won" || b != "won") || !same && a == b {
			t.Errorf("round %d, same bytes %v: the processes say %s and %s", i, same, a, b)
		}
	}
	names, err := s.List(t.Context(), "")
	if err != nil || len(names) != rivalRounds {
		t.Errorf("%d objects (%v), want %d", len(names), err, rivalRounds)
	}
	noLeftovers(t, s)
}

// noLeftovers checks that no temporary file is left in the store's directory.
func noLeftovers(t *testing.T, s *artifact.Files) {
	t.Helper()
	err := filepath.WalkDir(s.Root(), func(p string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".tmp-") {
			t.Errorf("%s is left over", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFiles_leftoversOfACrashAreInvisible(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	if _, err := s.Put(t.Context(), "d/whole", []byte("whole")); err != nil {
		t.Fatal(err)
	}
	// What a crash leaves: half a file, and half a directory that was being built or removed.
	for _, name := range []string{"d/.tmp-123", "d/.tmp-rm-7-1-old/file", ".tmp-9/sub/file"} {
		p := filepath.Join(s.Root(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("ha"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "d/", "d/.tmp"} {
		got, err := s.List(t.Context(), prefix)
		want := []string{"d/whole"}
		if prefix == "d/.tmp" {
			want = nil
		}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("List(%q): %v (-want +got):\n%s", prefix, err, d)
		}
	}
	if _, _, err := s.Get(t.Context(), "d/.tmp-123"); !fault.Is(err, fault.Invalid) {
		t.Errorf("Get of half a file: %v, want Invalid", err)
	}
	// A removal, also one that is made again after a crash, takes away what lies beside its object.
	for _, step := range []struct{ remove, dir, left string }{{"d/old", "d", "whole"}, {"d", ".", ""}} {
		if err := s.Remove(t.Context(), step.remove); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(filepath.Join(s.Root(), step.dir))
		if err != nil || len(left) > 1 || len(left) == 1 && left[0].Name() != step.left {
			t.Errorf("after Remove(%s), %s holds %v (%v), want %q", step.remove, step.dir, left, err, step.left)
		}
	}
}

func TestFiles_bytesThatRotOnDiskAreFound(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	ref, err := s.Put(t.Context(), "weights", bytes.Repeat([]byte{7}, 1000))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Path("weights")
	if err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func(data []byte) []byte{
		"one bit":   func(d []byte) []byte { d[500] ^= 1; return d },
		"truncated": func(d []byte) []byte { return d[:999] },
		"longer":    func(d []byte) []byte { return append(d, 7) },
	} {
		if err := os.WriteFile(p, damage(bytes.Repeat([]byte{7}, 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := artifact.Fetch(t.Context(), s, ref); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", what, err)
		}
	}
}

// A store whose directory is gone for a while, as with a device that is not mounted, finds nothing missing and makes nothing in its
// place; when it is back, everything goes on.
func TestFiles_awayIsBusyAndMakesNothing(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	ctx := t.Context()
	if _, err := s.Put(ctx, "d/old", []byte("old")); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Put":        func() error { _, err := s.Put(ctx, "new/one", []byte("x")); return err },
		"Put same":   func() error { _, err := s.Put(ctx, "d/old", []byte("old")); return err },
		"Replace":    func() error { _, err := s.Replace(ctx, "d/old2", []byte("x")); return err },
		"Get":        func() error { _, _, err := s.Get(ctx, "d/old"); return err },
		"Get none":   func() error { _, _, err := s.Get(ctx, "never/was"); return err },
		"Exists":     func() error { _, err := s.Exists(ctx, "d/old"); return err },
		"List":       func() error { _, err := s.List(ctx, ""); return err },
		"List below": func() error { _, err := s.List(ctx, "d/"); return err },
		"Remove":     func() error { return s.Remove(ctx, "d/old2") },
		"Remove d":   func() error { return s.Remove(ctx, "never") },
		"Path":       func() error { _, err := s.Path("d"); return err },
	}
	for _, dir := range []string{s.Root(), filepath.Dir(s.Root())} {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			if err := call(); !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" {
				t.Errorf("%s: %v, want Busy with a hint", name, err)
			}
		}
		if err := os.Rename(dir+".away", dir); err != nil { // fails if something was made in its place
			t.Fatal(err)
		}
	}
	for name, call := range calls {
		if err := call(); err != nil && name != "Get none" {
			t.Errorf("back again: %s: %v", name, err)
		}
	}
}

// A pipe in place of an object is damage; nobody waits for it.
func TestFiles_aPipeIsNoObject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := artifact.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "o"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, get := s.Get(t.Context(), "o")
	_, open := s.Open(t.Context(), "o")
	_, at := s.OpenAt(t.Context(), "o")
	_, put := s.Put(t.Context(), "o", []byte("x"))
	for what, err := range map[string]error{"Get": get, "Open": open, "OpenAt": at, "Put": put} {
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", what, err)
		}
	}
}

func TestNewFiles_refusesAFile(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(p, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p, filepath.Join(p, "below")} {
		if _, err := artifact.NewFiles(dir); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("NewFiles(%s): %v, want Invalid with a hint", dir, err)
		}
	}
}
