//go:build durability

package durability

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// All processes but the server have their clocks set back by an hour, the rollout worker dies at its points, the device of the store is full for a while and then the store is away for a while. What a full
// device and an absent store stop is tried again until they are back; the run ends as if nothing had happened.
func TestTroubledStore_endsWithTheSameWeights(t *testing.T) {
	want := undisturbed(t)
	c := newCluster(t, settings("sync"))
	data := filepath.Join(c.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil { //nolint:gosec // as steady makes it
		t.Fatal(err)
	}
	err := syscall.Mount("steady-test", data, "tmpfs", 0, "size=96m")
	mounted := err == nil
	if mounted {
		t.Cleanup(func() {
			if err := syscall.Unmount(data, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	} else {
		t.Logf("no small device, so none gets full here (mount: %v); package artifact tests full devices without", err)
	}
	p := plan{}.add("rollout.token:400", "rollout.sample.after", "rollout.trajectories.after", "rollout.flush.before:3")
	phase := 0
	c.drive(p.next, func() {
		switch done := len(c.results()); {
		case phase == 0 && done >= 1:
			c.setClocks(-time.Hour, roles...)
			if mounted {
				c.fill()
			}
			phase++
		case phase == 1 && (!mounted || c.said("no space left on device")):
			if mounted {
				c.note("store", "full device has room again", time.Now())
				if err := os.Remove(filepath.Join(data, "ballast")); err != nil {
					t.Fatal(err)
				}
			}
			phase++
		case phase == 2 && done >= 3:
			c.note("store", "is away", time.Now())
			if err := os.Rename(c.path(""), c.path("")+".away"); err != nil {
				t.Fatal(err)
			}
			phase++
		case phase == 3 && c.said("the artifact store is away"):
			c.note("store", "is back", time.Now())
			if err := os.Rename(c.path("")+".away", c.path("")); err != nil { // fails if a worker made another store in its place
				t.Fatal(err)
			}
			phase++
		}
	})
	if phase != 4 || p.size() > 0 {
		t.Errorf("the run ended in phase %d of the store's troubles, with points %v to come", phase, p)
	}
	c.check()
	if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
	}
}

// said reports whether a process has written text to its log.
func (c *cluster) said(text string) bool {
	for _, role := range roles {
		if strings.Contains(c.workers[role].Output(), text) {
			return true
		}
	}
	return false
}

// fill leaves no byte on the device of the store.
func (c *cluster) fill() {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.dir, "data", "ballast"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	zeros := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(zeros)
	}
	for err = error(nil); err == nil; {
		_, err = f.Write(zeros[:1])
	}
	if !errors.Is(err, syscall.ENOSPC) {
		c.t.Fatal(err)
	}
	n, _ := f.Seek(0, io.SeekCurrent)
	c.note("store", "is full", time.Now())
	c.t.Logf("%d bytes of ballast", n)
}
