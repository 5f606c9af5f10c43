// Package artifacttest is the conformance suite of artifact.Store: what every implementation promises, as tests.
package artifacttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// Factory returns an empty store that lives as long as the test.
type Factory func(t *testing.T) artifact.Store

// Run runs the suite. Each part gets a store of its own.
func Run(t *testing.T, open Factory) {
	t.Helper()
	parts := []struct {
		name string
		test func(t *testing.T, s artifact.Store)
	}{
		{"what was put is read back", roundTrip},
		{"the same bytes may be put twice, others are stale", writeOnce},
		{"replace overwrites", replace},
		{"readers of a replaced object see whole versions", replaceIsAtomic},
		{"many writers of the same bytes all succeed", sameWriters},
		{"of many writers of different bytes one succeeds", rivals},
		{"list is sorted and by prefix", list},
		{"remove deletes an object or a directory", remove},
		{"bad names are refused everywhere", badNames},
		{"a name is an object or a directory, not both", objectOrDirectory},
		{"fetch verifies digest and size", fetch},
		{"JSON of another shape is corrupt", jsonShape},
		{"a cancelled context changes nothing", cancelled},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.test(t, open(t))
		})
	}
}

func put(t *testing.T, s artifact.Store, name string, data []byte) artifact.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), name, data)
	if err != nil {
		t.Fatalf("Put(%s): %v", name, err)
	}
	return ref
}

// holds checks the bytes of an object; nil wants none.
func holds(t *testing.T, s artifact.Store, name string, want []byte) {
	t.Helper()
	got, ref, err := s.Get(t.Context(), name)
	exists, eerr := s.Exists(t.Context(), name)
	if want == nil {
		if !fault.Is(err, fault.NotFound) || exists || eerr != nil {
			t.Errorf("%s: Get %v, Exists %v (%v), want NotFound", name, err, exists, eerr)
		}
		return
	}
	if err != nil || !bytes.Equal(got, want) || !exists || eerr != nil {
		t.Errorf("%s holds %.40q (%v), Exists %v (%v), want %.40q", name, got, err, exists, eerr, want)
		return
	}
	if r := (artifact.Ref{Name: name, Digest: artifact.Digest(want), Size: int64(len(want))}); ref != r {
		t.Errorf("%s: reference %+v, want %+v", name, ref, r)
	}
}

func wantKind(t *testing.T, err error, kind fault.Kind, what string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: error %v, want kind %s", what, err, kind)
	}
}

func roundTrip(t *testing.T, s artifact.Store) {
	for name, data := range map[string][]byte{
		"empty": {}, "a/b/c-d_e.F1": []byte("text"), "big": bytes.Repeat([]byte{0, 255, 10}, 1<<20),
	} {
		holds(t, s, name, nil)
		ref := put(t, s, name, data)
		holds(t, s, name, data)
		if want := artifact.Digest(data); ref.Digest != want || ref.Name != name || ref.Size != int64(len(data)) {
			t.Errorf("Put(%s) = %+v, want digest %s", name, ref, want)
		}
	}
}

func writeOnce(t *testing.T, s artifact.Store) {
	first := put(t, s, "x/one", []byte("first"))
	if again := put(t, s, "x/one", []byte("first")); again != first {
		t.Errorf("second Put of the same bytes = %+v, want %+v", again, first)
	}
	for _, other := range []string{"other", "", "first "} {
		_, err := s.Put(t.Context(), "x/one", []byte(other))
		wantKind(t, err, fault.Stale, fmt.Sprintf("Put of %q over %q", other, "first"))
	}
	holds(t, s, "x/one", []byte("first"))
}

func replace(t *testing.T, s artifact.Store) {
	for _, text := range []string{"one", "two, which is longer", "3", ""} {
		ref, err := s.Replace(t.Context(), "pointer", []byte(text))
		if err != nil || ref.Digest != artifact.Digest([]byte(text)) {
			t.Fatalf("Replace(%q) = %+v, %v", text, ref, err)
		}
		holds(t, s, "pointer", []byte(text))
	}
	put(t, s, "once", []byte("a"))
	if _, err := s.Replace(t.Context(), "once", []byte("b")); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "once", []byte("b"))
}

// replaceIsAtomic reads while versions of very different lengths follow each other.
func replaceIsAtomic(t *testing.T, s artifact.Store) {
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1+(i%3)*200_000) }
	if _, err := s.Replace(t.Context(), "live", version(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				data, _, err := s.Get(context.Background(), "live")
				if err != nil || len(data) == 0 || !bytes.Equal(data, bytes.Repeat(data[:1], len(data))) || (len(data)-1)%200_000 != 0 {
					t.Errorf("a reader saw %d bytes starting with %.8q (%v), not a whole version", len(data), data, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 60 {
		if _, err := s.Replace(t.Context(), "live", version(i)); err != nil {
			t.Errorf("Replace %d: %v", i, err)
		}
	}
	close(done)
	readers.Wait()
}

func sameWriters(t *testing.T, s artifact.Store) {
	data := bytes.Repeat([]byte("same"), 50_000)
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			if _, err := s.Put(context.Background(), "deep/er/same", data); err != nil {
				t.Errorf("Put of the same bytes: %v", err)
			}
		})
	}
	writers.Wait()
	holds(t, s, "deep/er/same", data)
	onlyObjects(t, s, "deep/er/same")
}

func rivals(t *testing.T, s artifact.Store) {
	text := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100_000+i) }
	const n = 16
	var writers sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		writers.Go(func() { _, errs[i] = s.Put(context.Background(), "race/one", text(i)) })
	}
	writers.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Errorf("writers %d and %d both put different bytes", winner, i)
		default:
			wantKind(t, err, fault.Stale, "a writer that lost")
		}
	}
	if winner < 0 {
		t.Fatal("no writer succeeded")
	}
	holds(t, s, "race/one", text(winner))
	onlyObjects(t, s, "race/one")
}

// onlyObjects checks that the store lists these names and nothing else.
func onlyObjects(t *testing.T, s artifact.Store, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), "")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("List of everything (%v, -want +got):\n%s", err, d)
	}
}

func list(t *testing.T, s artifact.Store) {
	names := []string{"b/2", "b/10", "b/sub/1", "a", "bb/1", "b-1"}
	for _, n := range names {
		put(t, s, n, []byte(n))
	}
	for prefix, want := range map[string][]string{
		"": {"a", "b-1", "b/10", "b/2", "b/sub/1", "bb/1"}, "b/": {"b/10", "b/2", "b/sub/1"}, "b": {"b-1", "b/10", "b/2", "b/sub/1", "bb/1"},
		"b/1": {"b/10"}, "b/sub/": {"b/sub/1"}, "none": nil, "none/at/all/": nil, "a/": nil, "a/b/c": nil,
	} {
		got, err := s.List(t.Context(), prefix)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("List(%q): %v (-want +got):\n%s", prefix, err, d)
		}
	}
}

func remove(t *testing.T, s artifact.Store) {
	for _, n := range []string{"d/1", "d/sub/2", "dd/3", "one"} {
		put(t, s, n, []byte(n))
	}
	for _, n := range []string{"one", "one", "d", "never/was", "dd/3/below"} {
		if err := s.Remove(t.Context(), n); err != nil {
			t.Errorf("Remove(%s): %v", n, err)
		}
	}
	onlyObjects(t, s, "dd/3")
	put(t, s, "one", []byte("anew"))
	put(t, s, "d/1", []byte("anew"))
	holds(t, s, "d/1", []byte("anew"))
}

func badNames(t *testing.T, s artifact.Store) {
	put(t, s, "keep", []byte("kept"))
	for _, name := range []string{
		"", ".", "..", "../x", "a/../../x", "a/../b", "/etc/x", "a//b", "a/", "./a", "a b", "a\x00b", `a\b`, "ä", "a\n", "a:b", "*",
		".tmp-x", "a/.tmp-x", ".tmp-d/x",
	} {
		_, err := s.Put(t.Context(), name, nil)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Put(%q)", name))
		_, err = s.Replace(t.Context(), name, nil)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Replace(%q)", name))
		_, _, err = s.Get(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Get(%q)", name))
		_, err = s.Exists(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Exists(%q)", name))
		_, err = s.Path(name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Path(%q)", name))
		err = s.Remove(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Remove(%q)", name))
		if fault.HintOf(err) == "" {
			t.Errorf("Remove(%q) gives no hint", name)
		}
	}
	for _, prefix := range []string{"../", "/", "a/../../"} {
		_, err := s.List(t.Context(), prefix)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("List(%q)", prefix))
	}
	onlyObjects(t, s, "keep")
}

func objectOrDirectory(t *testing.T, s artifact.Store) {
	put(t, s, "a", []byte("object"))
	put(t, s, "d/1", []byte("object"))
	_, err := s.Put(t.Context(), "a/b", []byte("x"))
	wantKind(t, err, fault.Invalid, "Put below an object")
	_, err = s.Put(t.Context(), "d", []byte("x"))
	wantKind(t, err, fault.Invalid, "Put over a directory")
	_, err = s.Replace(t.Context(), "d", []byte("x"))
	wantKind(t, err, fault.Invalid, "Replace of a directory")
	holds(t, s, "a/b", nil)
	onlyObjects(t, s, "a", "d/1")
}

func fetch(t *testing.T, s artifact.Store) {
	ref := put(t, s, "data", []byte("right"))
	got, err := artifact.Fetch(t.Context(), s, ref)
	if err != nil || string(got) != "right" {
		t.Errorf("Fetch = %q, %v", got, err)
	}
	if _, err := s.Replace(t.Context(), "data", []byte("wrong")); err != nil {
		t.Fatal(err)
	}
	_, err = artifact.Fetch(t.Context(), s, ref)
	wantKind(t, err, fault.Corrupt, "Fetch of changed bytes")
	wantKind(t, artifact.FetchJSON(t.Context(), s, ref, new(any)), fault.Corrupt, "FetchJSON of changed bytes")
	short := artifact.Ref{Name: "data", Digest: artifact.Digest([]byte("wrong")), Size: 4}
	_, err = artifact.Fetch(t.Context(), s, short)
	wantKind(t, err, fault.Corrupt, "Fetch with another size")
	_, err = artifact.Fetch(t.Context(), s, artifact.Ref{Name: "none"})
	wantKind(t, err, fault.NotFound, "Fetch of nothing")
}

func jsonShape(t *testing.T, s artifact.Store) {
	type doc struct {
		N    int      `json:"n"`
		List []string `json:"list"`
	}
	want := doc{7, []string{"<a>", "ä"}}
	ref, err := artifact.PutJSON(t.Context(), s, "doc.json", want)
	if err != nil {
		t.Fatal(err)
	}
	var got doc
	if err := artifact.FetchJSON(t.Context(), s, ref, &got); err != nil || !cmp.Equal(got, want) {
		t.Errorf("FetchJSON = %+v, %v, want %+v", got, err, want)
	}
	if r, err := artifact.GetJSON(t.Context(), s, "doc.json", &got); err != nil || r != ref {
		t.Errorf("GetJSON: %+v, %v, want %+v", r, err, ref)
	}
	put(t, s, "half.json", []byte(`{"n": 7, "li`))
	_, err = artifact.GetJSON(t.Context(), s, "half.json", &got)
	wantKind(t, err, fault.Corrupt, "GetJSON of half a document")
	_, err = artifact.ReplaceJSON(t.Context(), s, "doc.json", func() {})
	wantKind(t, err, fault.Numeric, "ReplaceJSON of what has no JSON form")
	holds(t, s, "doc.json", mustGet(t, s, "doc.json"))
}

func mustGet(t *testing.T, s artifact.Store, name string) []byte {
	t.Helper()
	data, _, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(data)
}

func cancelled(t *testing.T, s artifact.Store) {
	put(t, s, "old", []byte("old"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"Put":     func() error { _, err := s.Put(ctx, "new", []byte("x")); return err },
		"Replace": func() error { _, err := s.Replace(ctx, "old", []byte("x")); return err },
		"Get":     func() error { _, _, err := s.Get(ctx, "old"); return err },
		"Exists":  func() error { _, err := s.Exists(ctx, "old"); return err },
		"List":    func() error { _, err := s.List(ctx, ""); return err },
		"Remove":  func() error { return s.Remove(ctx, "old") },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", name, err)
		}
	}
	holds(t, s, "old", []byte("old"))
	onlyObjects(t, s, "old")
}
