package bucket_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/fault"
)

// Reading in parts survives connections that break, asks for a block once, and notices another object.
func TestOpenAt_thatBreaksOff(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	data := bytes.Repeat([]byte("0123456789"), 40_000) // two blocks
	if _, err := s.Put(t.Context(), "o", data); err != nil {
		t.Fatal(err)
	}
	p, err := s.OpenAt(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "GetObject" && reads.Add(1) < 3 {
			return &buckettest.Fault{Cut: 1500}
		}
		return nil
	}
	got := make([]byte, 5)
	for _, at := range []int64{7, 123, 399_994, 262_143} {
		if n, err := p.ReadAt(got, at); err != nil || n != 5 || !bytes.Equal(got, data[at:at+5]) {
			t.Errorf("at %d: %q, %v", at, got[:n], err)
		}
	}
	if n := reads.Load(); n != 4 {
		t.Errorf("%d requests, want two that break and one for each block", n)
	}
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "GetObject" {
			return &buckettest.Fault{Cut: 100}
		}
		return nil
	}
	q, err := s.OpenAt(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.ReadAt(got, 0); !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" {
		t.Errorf("a connection that never lasts: %v, want Busy with a hint", err)
	}
	srv.Intercept = nil
	srv.Damage("p/o", func(d []byte) []byte { d[0] = 'x'; return d })
	if _, err := q.ReadAt(got, 0); !fault.Is(err, fault.Busy) || !strings.Contains(err.Error(), "changed") {
		t.Errorf("an object that changes while it is read: %v, want Busy that says so", err)
	}
	if n, err := p.ReadAt(got, 0); err != nil || string(got[:n]) != "01234" {
		t.Errorf("a block that was read: %q, %v", got[:n], err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := s.OpenAt(ctx, "o")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.ReadAt(got, 0); err == nil || fault.Is(err, fault.Corrupt) {
		t.Errorf("a cancelled reader: %v", err)
	}
}

// A directory is an entry when it has appeared, at whatever request its writer dies; and it stays one question however often it is listed.
func TestEntries_seeADirectoryWhenItAppears(t *testing.T) {
	t.Parallel()
	seen := false
	for dies := 1; !seen; dies++ {
		srv := buckettest.New(t)
		s := store(t, srv.Address("p"))
		if _, err := s.Put(t.Context(), "d/other", nil); err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		var n atomic.Int32
		srv.Intercept = func(string, string) *buckettest.Fault {
			if int(n.Add(1)) < dies {
				return nil
			}
			die()
			return &buckettest.Fault{}
		}
		err := s.Build(ctx, "d/built", build(map[string]string{"a": "1", "b": "2"}))
		die()
		srv.Intercept = nil
		other := store(t, srv.Address("p"))
		_, perr := other.Pull(t.Context(), "d/built")
		list, lerr := other.Entries(t.Context(), "d")
		files, ferr := other.Entries(t.Context(), "d/built")
		if lerr != nil || ferr != nil {
			t.Fatal(lerr, ferr)
		}
		there := len(list) == 2 && list[0].Name() == "built" && list[0].IsDir()
		if there != (perr == nil) || there != (len(files) == 2) {
			t.Fatalf("died at request %d (%v): %v and %v are listed, Pull says %v", dies, err, list, files, perr)
		}
		seen = err == nil && there
		if !seen {
			continue
		}
		n.Store(0)
		srv.Intercept = func(string, string) *buckettest.Fault { n.Add(1); return nil }
		if _, err := other.Entries(t.Context(), "d"); err != nil || n.Load() != 1 {
			t.Errorf("listed again: %d requests (%v), want one", n.Load(), err)
		}
		if dies < 5 {
			t.Errorf("a Build makes %d requests: the test sees too few of them", dies)
		}
	}
}
