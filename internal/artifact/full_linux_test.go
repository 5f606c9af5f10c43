package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// fullVariable says how the child makes its device full: "limit" (of the size of files) or "tmpfs" (a small one).
const fullVariable = "STEADY_TEST_ARTIFACT_FULL"

func init() { roles["full"] = fillUp }

const deviceSize = 256 << 10

// fillUp puts and replaces on a device that is too small, frees space and tries again.
func fillUp(dir string) error {
	switch os.Getenv(fullVariable) {
	case "limit":
		// Without this the kernel ends the process where a write would fail.
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: deviceSize, Max: deviceSize}); err != nil {
			return err
		}
	case "tmpfs":
		if err := syscall.Mount("steady-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", deviceSize)); err != nil {
			return err
		}
	}
	s, err := artifact.NewFiles(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	small, large := []byte("small"), bytes.Repeat([]byte{1}, deviceSize+4096)
	if _, err := s.Put(ctx, "live", small); err != nil {
		return err
	}
	if _, err := s.Put(ctx, "ballast", bytes.Repeat([]byte{2}, deviceSize/2)); err != nil {
		return err
	}
	_, err = s.Put(ctx, "new/large", large)
	if err := errors.Join(wantBusy("Put", err), nothing(ctx, s, "new/large")); err != nil {
		return err
	}
	_, err = s.Replace(ctx, "live", large)
	if err := wantBusy("Replace", err); err != nil {
		return err
	}
	if data, _, err := s.Get(ctx, "live"); err != nil || !bytes.Equal(data, small) {
		return fmt.Errorf("after a failed Replace the object holds %d bytes (%w)", len(data), err)
	}
	// The same call succeeds when there is room: here for a smaller object, after the ballast is gone.
	if err := s.Remove(ctx, "ballast"); err != nil {
		return err
	}
	if _, err := s.Put(ctx, "new/large", large[:deviceSize*3/4]); err != nil {
		return fmt.Errorf("after space was freed: %w", err)
	}
	return leftovers(s.Root())
}

func wantBusy(what string, err error) error {
	if !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" || !fault.KindOf(err).Retryable() {
		return fmt.Errorf("%s on a full device: %w (kind %s, hint %q), want Busy with a hint", what, err, fault.KindOf(err), fault.HintOf(err))
	}
	return nil
}

func nothing(ctx context.Context, s artifact.Store, name string) error {
	exists, err := s.Exists(ctx, name)
	list, lerr := s.List(ctx, "new/")
	if exists || len(list) > 0 {
		return fmt.Errorf("%s is half visible: exists %v, listed %v", name, exists, list)
	}
	return errors.Join(err, lerr)
}

func leftovers(root string) error {
	found, err := filepath.Glob(filepath.Join(root, "*", ".tmp-*"))
	more, merr := filepath.Glob(filepath.Join(root, ".tmp-*"))
	if found = append(found, more...); len(found) > 0 {
		return fmt.Errorf("left over: %v", found)
	}
	return errors.Join(err, merr)
}

func TestFiles_fullDeviceIsBusyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"limit", "tmpfs"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := child(t, "full", t.TempDir())
			cmd.Env = append(cmd.Env, fullVariable+"="+how)
			if how == "tmpfs" {
				// A mount of its own that ends with the child.
				cmd.SysProcAttr = &syscall.SysProcAttr{
					Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
					UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
					GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
				}
			}
			out, err := cmd.CombinedOutput()
			if how == "tmpfs" && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL)) {
				t.Skipf("this kernel lets nobody mount in a namespace of its own: %v", err)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
