// Package artifacttest is the conformance suite of artifact.Store: what every implementation promises, as tests.
package artifacttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
		{"a directory appears whole and is pulled", directories},
		{"a directory that is built again is kept or replaced", rebuilt},
		{"a directory that was set aside leaves its name free", aside},
		{"an object is read as a stream", streams},
		{"a directory says what lies in it", entries},
		{"an object is read in parts", parts},
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
		_, err = s.Open(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Open(%q)", name))
		_, err = s.Dirs(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Dirs(%q)", name))
		_, err = s.Pull(t.Context(), name)
		wantKind(t, err, fault.Invalid, fmt.Sprintf("Pull(%q)", name))
		wantKind(t, s.Build(t.Context(), name, func(string) error { return nil }), fault.Invalid, fmt.Sprintf("Build(%q)", name))
		wantKind(t, s.Aside(t.Context(), name), fault.Invalid, fmt.Sprintf("Aside(%q)", name))
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
		"Open":    func() error { _, err := s.Open(ctx, "old"); return err },
		"Dirs":    func() error { _, err := s.Dirs(ctx, "old"); return err },
		"Pull":    func() error { _, err := s.Pull(ctx, "old"); return err },
		"Build":   func() error { return s.Build(ctx, "built", maker(t, map[string]string{"f": "x"})) },
		"Aside":   func() error { return s.Aside(ctx, "old") },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", name, err)
		}
	}
	holds(t, s, "old", []byte("old"))
	onlyObjects(t, s, "old")
}

// maker is a build function as those of steady: it makes the directory elsewhere, and it appears by a rename.
func maker(t *testing.T, files map[string]string) func(dir string) error {
	t.Helper()
	return func(dir string) error {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as every directory of the store
			return err
		}
		tmp, err := os.MkdirTemp(filepath.Dir(dir), ".tmp-")
		if err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o644); err != nil { //nolint:gosec // as every file of the store
				return err
			}
		}
		return errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir))
	}
}

// pulled checks the files of a directory: in the local copy, and by their names in the store. nil wants no such directory.
func pulled(t *testing.T, s artifact.Store, name string, want map[string]string) {
	t.Helper()
	dir, err := s.Pull(t.Context(), name)
	if err != nil && !(want == nil && fault.Is(err, fault.NotFound)) {
		t.Errorf("Pull(%s): %v", name, err)
		return
	}
	var got map[string]string
	if err == nil {
		entries, _ := os.ReadDir(dir) // one that is not there has no files
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Error(err)
			}
			if got == nil {
				got = map[string]string{}
			}
			got[e.Name()] = string(text)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the local copy of %s (-want +got):\n%s", name, d)
	}
	exists, err := s.Exists(t.Context(), name)
	if err != nil || exists != (want != nil) {
		t.Errorf("Exists(%s) = %v, %v, want %v", name, exists, err, want != nil)
	}
	var names []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		names = append(names, name+"/"+file)
		holds(t, s, name+"/"+file, []byte(want[file]))
	}
	listed, err := s.List(t.Context(), name+"/")
	if d := cmp.Diff(names, listed); err != nil || d != "" {
		t.Errorf("List(%s/): %v (-want +got):\n%s", name, err, d)
	}
}

func directories(t *testing.T, s artifact.Store) {
	one := map[string]string{"a.bin": "first", "b.json": "{}", "empty": ""}
	two := map[string]string{"x": "second"}
	pulled(t, s, "run/checkpoints/000001", nil)
	for name, files := range map[string]map[string]string{"run/checkpoints/000001": one, "run/checkpoints/000002": two, "top": two} {
		if err := s.Build(t.Context(), name, maker(t, files)); err != nil {
			t.Fatalf("Build(%s): %v", name, err)
		}
		pulled(t, s, name, files)
	}
	put(t, s, "run/checkpoints/note", []byte("an object"))
	put(t, s, "run/base/config.json", []byte("{}"))
	pulled(t, s, "run/base", map[string]string{"config.json": "{}"}) // a directory of objects is pulled, too
	for name, want := range map[string][]string{
		"run/checkpoints": {"000001", "000002"}, "run": {"base", "checkpoints"}, "none": nil, "run/checkpoints/note": nil, "top": nil,
	} {
		got, err := s.Dirs(t.Context(), name)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("Dirs(%s): %v (-want +got):\n%s", name, err, d)
		}
	}
	onlyObjects(t, s, "run/base/config.json", "run/checkpoints/000001/a.bin", "run/checkpoints/000001/b.json", "run/checkpoints/000001/empty",
		"run/checkpoints/000002/x", "run/checkpoints/note", "top/x")
	got, err := s.List(t.Context(), "run/checkpoints/000001/b")
	if d := cmp.Diff([]string{"run/checkpoints/000001/b.json"}, got); err != nil || d != "" {
		t.Errorf("List of a part of a name in a directory: %v (-want +got):\n%s", err, d)
	}
	if _, err := s.Put(t.Context(), "run/checkpoints/000001", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("Put over a directory that was built: %v, want Invalid", err)
	}
	if err := s.Remove(t.Context(), "run/checkpoints/000001"); err != nil {
		t.Error(err)
	}
	pulled(t, s, "run/checkpoints/000001", nil)
	pulled(t, s, "run/checkpoints/000002", two)
	if err := s.Remove(t.Context(), "run"); err != nil {
		t.Error(err)
	}
	onlyObjects(t, s, "top/x")
}

func rebuilt(t *testing.T, s artifact.Store) {
	first, second := map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "other", "c": "3"}
	mistake := errors.New("as the test wants")
	err := s.Build(t.Context(), "d/x", func(string) error { return mistake })
	if !errors.Is(err, mistake) {
		t.Errorf("Build whose function fails: %v, want its error", err)
	}
	pulled(t, s, "d/x", nil)
	for _, files := range []map[string]string{first, second, first} {
		if err := s.Build(t.Context(), "d/x", maker(t, files)); err != nil {
			t.Fatal(err)
		}
		pulled(t, s, "d/x", files)
		err := s.Build(t.Context(), "d/x", func(dir string) error { // finds what is there, and keeps it
			got, err := os.ReadFile(filepath.Join(dir, "a"))
			if err == nil && string(got) != files["a"] {
				t.Errorf("the second Build finds %q, want %q", got, files["a"])
			}
			return err
		})
		if err != nil {
			t.Errorf("Build of what is there: %v", err)
		}
		pulled(t, s, "d/x", files)
	}
}

func aside(t *testing.T, s artifact.Store) {
	files := map[string]string{"a": "1"}
	for range 2 { // one that was set aside before does not matter
		if err := s.Build(t.Context(), "c/000001", maker(t, files)); err != nil {
			t.Fatal(err)
		}
		if err := s.Aside(t.Context(), "c/000001"); err != nil {
			t.Fatal(err)
		}
		pulled(t, s, "c/000001", nil)
		got, err := s.Dirs(t.Context(), "c")
		if err != nil || slices.Contains(got, "000001") {
			t.Errorf("Dirs = %v, %v after a directory was set aside", got, err)
		}
	}
	if err := s.Aside(t.Context(), "c/000009"); err != nil {
		t.Errorf("Aside of nothing: %v", err)
	}
}

func streams(t *testing.T, s artifact.Store) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	put(t, s, "s/large", data)
	if err := s.Build(t.Context(), "s/dir", maker(t, map[string]string{"f": "in a directory"})); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"s/large": data, "s/dir/f": []byte("in a directory")} {
		r, err := s.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("Open(%s) gives %d bytes (%v), want %d", name, len(got), err, len(want))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"s/none", "s/large/below", "s/dir/none"} {
		_, err := s.Open(t.Context(), name)
		wantKind(t, err, fault.NotFound, "Open("+name+")")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%s): %v is not fs.ErrNotExist", name, err)
		}
	}
}

func entries(t *testing.T, s artifact.Store) {
	for _, name := range []string{"e/b", "e/a", "e/deep/below/x", "e/z/y", "f/other"} {
		put(t, s, name, []byte(name))
	}
	if err := s.Build(t.Context(), "e/built", maker(t, map[string]string{"one": "1", "two": "22"})); err != nil {
		t.Fatal(err)
	}
	if err := s.Build(t.Context(), "e/gone", maker(t, map[string]string{"one": "1"})); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "e/gone"); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string][]string{
		"e": {"a 3", "b 3", "built/", "deep/", "z/"}, "e/deep": {"below/"}, "e/built": {"one 1", "two 2"}, "f": {"other 7"}, "e/gone": nil, "none": nil, "e/a": nil,
	} {
		list, err := s.Entries(t.Context(), dir)
		if err != nil {
			t.Fatalf("Entries(%s): %v", dir, err)
		}
		var got []string
		for _, e := range list {
			if e.IsDir() {
				got = append(got, e.Name()+"/")
				continue
			}
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(e.Name(), " ", info.Size()))
			if at := info.ModTime(); at.Year() < 2000 {
				t.Errorf("%s/%s changed at %v", dir, e.Name(), at)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("Entries(%s): %s", dir, d)
		}
	}
	// What an entry says changes with the object, also within a second and with the same size.
	state := func() (string, bool) {
		list, err := s.Entries(t.Context(), "f")
		if err != nil || len(list) != 1 {
			t.Fatalf("Entries(f): %v, %v", list, err)
		}
		info, err := list[0].Info()
		if err != nil {
			t.Fatal(err)
		}
		text, told := info.Sys().(string)
		return text, told
	}
	seen := map[string]bool{}
	for i := range 4 {
		if _, err := s.Replace(t.Context(), "f/other", fmt.Appendf(nil, "other %d", i)); err != nil {
			t.Fatal(err)
		}
		now, told := state() // else the time says it, as finely as the file system keeps it
		if told && seen[now] {
			t.Errorf("another object looks the same: %s", now)
		}
		seen[now] = true
	}
	if _, err := s.Entries(t.Context(), "../x"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a bad name: %v", err)
	}
}

func parts(t *testing.T, s artifact.Store) {
	data := make([]byte, 700_001)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	put(t, s, "p/large", data)
	put(t, s, "p/empty", nil)
	if err := s.Build(t.Context(), "p/dir", maker(t, map[string]string{"f": "in a directory"})); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"p/large": data, "p/dir/f": []byte("in a directory"), "p/empty": nil} {
		p, err := s.OpenAt(t.Context(), name)
		if err != nil {
			t.Fatalf("OpenAt(%s): %v", name, err)
		}
		if p.Size() != int64(len(want)) {
			t.Errorf("%s has %d bytes, want %d", name, p.Size(), len(want))
		}
		for _, r := range [][2]int{{0, 4}, {len(want) - 8, 8}, {0, len(want)}, {len(want) / 2, 1}, {262_140, 9}, {len(want) - 3, 10}, {len(want), 1}, {len(want) + 5, 1}} {
			at, n := r[0], r[1]
			if at < 0 {
				continue
			}
			b := make([]byte, n)
			got, err := p.ReadAt(b, int64(at))
			rest := want[min(at, len(want)):]
			rest = rest[:min(n, len(rest))]
			if !bytes.Equal(b[:got], rest) || (err == nil) != (got == n) && !(got == n && errors.Is(err, io.EOF)) || got < n && !errors.Is(err, io.EOF) {
				t.Errorf("%s: %d bytes at %d give %d (%v), want %d", name, n, at, got, err, len(rest))
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"p/none", "p/large/below", "p/dir/none", "p/dir", "p"} {
		_, err := s.OpenAt(t.Context(), name)
		wantKind(t, err, fault.NotFound, "OpenAt("+name+")")
	}
}
