package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/artifacttest"
	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/fault"
)

// TestMain gives the process the credentials of the servers of the tests.
func TestMain(m *testing.M) {
	for name, value := range buckettest.Environment() {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// open opens the store of a server with small parts, so that what is large is uploaded in several.
func open(t *testing.T, address string, change ...func(*bucket.Options)) (*bucket.Store, error) {
	t.Helper()
	place, err := bucket.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	o := bucket.Options{Place: place, Cache: t.TempDir(), Part: 100 << 10}
	for _, c := range change {
		c(&o)
	}
	return bucket.Open(t.Context(), o)
}

// once leaves it to the caller to try again.
func once(o *bucket.Options) { o.Attempts = 1 }

func store(t *testing.T, address string, change ...func(*bucket.Options)) *bucket.Store {
	t.Helper()
	s, err := open(t, address, change...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_conformance(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T) artifact.Store { return store(t, buckettest.New(t).Address("some/prefix")) })
}

func TestStore_conformanceWithoutAPrefix(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T) artifact.Store { return store(t, buckettest.New(t).Address("")) })
}

func TestParse_readsWhatItPrints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bucket.Place{
		"s3://b":     {Bucket: "b"},
		"s3://b/p/q": {Bucket: "b", Prefix: "p/q/"},
		"s3://b/p/?region=eu-central-1&endpoint=https%3A%2F%2Fh%3A9000": {
			Bucket: "b", Prefix: "p/", Region: "eu-central-1", Endpoint: "https://h:9000", PathStyle: true,
		},
		"s3://b?endpoint=http://h&path-style=false": {Bucket: "b", Endpoint: "http://h"},
		"s3://b?path-style=true":                    {Bucket: "b", PathStyle: true},
	} {
		got, err := bucket.Parse(text)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("Parse(%q): %v (-want +got):\n%s", text, err, d)
		}
		if again, err := bucket.Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", got.String(), again, err, got)
		}
	}
}

func TestParse_refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "b/p", "S3://b", "s3:b", "s3://", "s3:///p", "http://b/p", "s3://b:1/p", "s3://b/p#f", "s3://b/a//b", "s3://b/a b", "s3://b/../x", "s3://b/.tmp-x",
		"s3://key:sesame@b/p", "s3://b?regio=x", "s3://b?region=a&region=b", "s3://b?path-style=maybe", "s3://b?endpoint=h:9000", "s3://b?endpoint=ftp://h",
		"s3://b?endpoint=http://key:sesame@h", "s3://b?endpoint=http://h/path", "s3://b?%zz", "s3://b/\x7f?secret=sesame",
	} {
		_, err := bucket.Parse(text)
		if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "sesame") {
			t.Errorf("Parse(%q): %v, want Invalid with a hint and without a secret", text, err)
		}
	}
}

// Every kind of trouble, in every call: what a person or a running loop can do about it.
func TestStore_errorsHaveTheirKind(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"), once)
	ctx := t.Context()
	if _, err := s.Put(ctx, "d/old", []byte("old")); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Put":     func() error { _, err := s.Put(ctx, "new/one", []byte("x")); return err },
		"Replace": func() error { _, err := s.Replace(ctx, "d/old", []byte("x")); return err },
		"Get":     func() error { _, _, err := s.Get(ctx, "d/old"); return err },
		"Open":    func() error { _, err := s.Open(ctx, "d/old"); return err },
		"Exists":  func() error { _, err := s.Exists(ctx, "d/old"); return err },
		"List":    func() error { _, err := s.List(ctx, "d/"); return err },
		"Dirs":    func() error { _, err := s.Dirs(ctx, "d"); return err },
		"Remove":  func() error { return s.Remove(ctx, "d/never") },
		"Pull":    func() error { _, err := s.Pull(ctx, "d"); return err },
		"Build":   func() error { return s.Build(ctx, "built", build(map[string]string{"f": "x"})) },
		"Aside":   func() error { return s.Aside(ctx, "d") },
	}
	for _, c := range []struct {
		status int
		code   string
		want   fault.Kind
	}{
		{500, "InternalError", fault.Busy},
		{503, "SlowDown", fault.Busy},
		{503, "ServiceUnavailable", fault.Busy},
		{429, "TooManyRequests", fault.Busy},
		{507, "XMinioStorageFull", fault.Busy},
		{400, "RequestTimeout", fault.Busy},
		{400, "BadDigest", fault.Busy},
		{409, "OperationAborted", fault.Busy},
		{403, "RequestTimeTooSkewed", fault.Busy},
		{400, "ExpiredToken", fault.Busy},
		{403, "InvalidAccessKeyId", fault.Busy},
		{403, "SignatureDoesNotMatch", fault.Busy},
		{403, "AccessDenied", fault.Invalid},
		{400, "InvalidArgument", fault.Invalid},
		{301, "PermanentRedirect", fault.Invalid},
		{501, "NotImplemented", fault.Invalid},
		{418, "Teapot", fault.Internal},
	} {
		for name, call := range calls {
			srv.Intercept = func(op, _ string) *buckettest.Fault {
				if op == "HeadObject" { // without a body only the status is known
					return nil
				}
				return &buckettest.Fault{Status: c.status, Code: c.code}
			}
			if name == "Exists" { // that of an object which is there is answered by one HEAD
				srv.Intercept = func(string, string) *buckettest.Fault { return &buckettest.Fault{Status: c.status, Code: c.code} }
			}
			err := call()
			if name == "Exists" && (c.status == 400 || c.status == 409) { // a bare status says too little
				continue
			}
			want := c.want
			if name == "Exists" && c.status == 403 {
				want = fault.Invalid
			}
			if !fault.Is(err, want) || want != fault.Internal && fault.HintOf(err) == "" {
				t.Errorf("%s with %d %s: %v (kind %s), want %s with a hint", name, c.status, c.code, err, fault.KindOf(err), want)
			}
			if err != nil && (strings.Contains(err.Error(), buckettest.Secret) || strings.Contains(fault.HintOf(err), buckettest.Secret)) {
				t.Errorf("%s with %s tells the secret: %v", name, c.code, err)
			}
		}
	}
	// The bucket is gone for a while: nothing is missing, everything waits.
	srv.Intercept = nil
	srv.Drop(true)
	for name, call := range calls {
		if err := call(); !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" {
			if name == "Exists" && err == nil {
				t.Error("Exists says that nothing is there while the bucket is gone")
			} else {
				t.Errorf("%s without the bucket: %v, want Busy with a hint", name, err)
			}
		}
	}
	srv.Drop(false)
	if data, _, err := s.Get(ctx, "d/old"); err != nil || string(data) != "old" {
		t.Errorf("the bucket is back: %q, %v", data, err)
	}
}

// build is a build function that writes in place.
func build(files map[string]string) func(dir string) error {
	return func(dir string) error {
		err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750))
		for name, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return err
	}
}

// What a person has to put right keeps a worker from starting.
func TestOpen_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil  func(*buckettest.Server)
		change func(*bucket.Options)
		want   fault.Kind
		text   string
	}{
		"a server without conditional writes": {func(s *buckettest.Server) { s.Careless = true }, nil, fault.Invalid, "If-None-Match"},
		"no bucket":                           {func(s *buckettest.Server) { s.Drop(true) }, nil, fault.Invalid, "bucket does not exist"},
		"wrong key":                           {every(403, "InvalidAccessKeyId"), nil, fault.Invalid, "does not accept the credentials"},
		"wrong secret":                        {every(403, "SignatureDoesNotMatch"), nil, fault.Invalid, "does not accept the credentials"},
		"no right":                            {every(403, "AccessDenied"), nil, fault.Invalid, "AccessDenied"},
		"server is down":                      {every(503, "ServiceUnavailable"), nil, fault.Busy, "ServiceUnavailable"},
		"no region":                           {nil, func(o *bucket.Options) { o.Endpoint = "" }, fault.Invalid, "no region"},
		"nobody listens":                      {nil, func(o *bucket.Options) { o.Endpoint = "http://127.0.0.1:1" }, fault.Busy, "connection refused"},
		"cache is a file":                     {nil, func(o *bucket.Options) { o.Cache = file }, fault.Invalid, "cache"},
		"no bucket to read": {
			func(s *buckettest.Server) { s.Drop(true) }, func(o *bucket.Options) { o.ReadOnly = true }, fault.Invalid, "bucket does not exist",
		},
		"nothing to read": {nil, func(o *bucket.Options) { o.ReadOnly = true }, fault.NotFound, "no artifact store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := buckettest.New(t)
			if c.spoil != nil {
				c.spoil(srv)
			}
			_, err := open(t, srv.Address("p"), once, func(o *bucket.Options) {
				if c.change != nil {
					c.change(o)
				}
			})
			if !fault.Is(err, c.want) || fault.HintOf(err) == "" || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("got %v (kind %s, hint %q), want %s with %q", err, fault.KindOf(err), fault.HintOf(err), c.want, c.text)
			}
		})
	}
}

func every(status int, code string) func(*buckettest.Server) {
	return func(s *buckettest.Server) {
		s.Intercept = func(string, string) *buckettest.Fault { return &buckettest.Fault{Status: status, Code: code} }
	}
}

// A role that may not write the store's own object can use the store that another one made.
func TestOpen_withoutTheRightToMakeTheStore(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	if _, err := store(t, srv.Address("p")).Put(t.Context(), "o", []byte("x")); err != nil {
		t.Fatal(err)
	}
	srv.Intercept = func(op, key string) *buckettest.Fault {
		if op == "PutObject" && strings.HasSuffix(key, "@steady.json") {
			return &buckettest.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}
		}
		return nil
	}
	for _, readOnly := range []bool{false, true} {
		s := store(t, srv.Address("p"), func(o *bucket.Options) { o.ReadOnly = readOnly })
		if data, _, err := s.Get(t.Context(), "o"); err != nil || string(data) != "x" {
			t.Errorf("read only %v: Get = %q, %v", readOnly, data, err)
		}
	}
}

// A large object is uploaded in parts; whatever fails leaves neither an object nor an upload, and the next try succeeds.
func TestPut_ofALargeObjectThatIsInterrupted(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // seven parts
	for name, f := range map[string]struct {
		op    string
		fault buckettest.Fault
		want  fault.Kind // "" for success
	}{
		"begin refused":           {"CreateMultipartUpload", buckettest.Fault{Status: 503, Code: "SlowDown"}, fault.Busy},
		"a part is refused":       {"UploadPart", buckettest.Fault{Status: 507, Code: "XMinioStorageFull"}, fault.Busy},
		"the connection ends":     {"UploadPart", buckettest.Fault{}, fault.Busy},
		"end refused":             {"CompleteMultipartUpload", buckettest.Fault{Status: 500, Code: "InternalError"}, fault.Busy},
		"the last answer is lost": {"CompleteMultipartUpload", buckettest.Fault{After: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := buckettest.New(t)
			s := store(t, srv.Address("p"))
			var parts atomic.Int32
			srv.Intercept = func(op, _ string) *buckettest.Fault {
				if op != f.op || op == "UploadPart" && parts.Add(1) <= 2 || f.fault.After && parts.Add(1) > 1 {
					return nil
				}
				return &f.fault
			}
			_, err := s.Put(t.Context(), "large", data)
			if f.want == "" && err != nil || f.want != "" && !fault.Is(err, f.want) {
				t.Fatalf("got %v, want %q", err, f.want)
			}
			if n := srv.Uploads(); n != 0 {
				t.Errorf("%d uploads are left", n)
			}
			srv.Intercept = nil
			if ok, err := s.Exists(t.Context(), "large"); err != nil || ok != (f.want == "") {
				t.Errorf("the object exists: %v, %v", ok, err)
			}
			if _, err := s.Put(t.Context(), "large", data); err != nil {
				t.Errorf("the next try: %v", err)
			}
			if got, ref, err := s.Get(t.Context(), "large"); err != nil || !bytes.Equal(got, data) || ref.Digest != artifact.Digest(data) {
				t.Errorf("got %d bytes, %+v, %v", len(got), ref, err)
			}
			if _, err := s.Put(t.Context(), "large", data[1:]); !fault.Is(err, fault.Stale) {
				t.Errorf("other bytes of the same name: %v, want Stale", err)
			}
		})
	}
}

// Uploads that a killed process left are ended by the next one of the same name, once they are a day old.
func TestPut_endsOldUploads(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "UploadPart" || op == "AbortMultipartUpload" {
			return &buckettest.Fault{Status: 500, Code: "InternalError"}
		}
		return nil
	}
	data := make([]byte, 300<<10)
	for range 2 {
		if _, err := s.Put(t.Context(), "large", data); !fault.Is(err, fault.Busy) {
			t.Fatal(err)
		}
	}
	srv.Intercept = nil
	if n := srv.Uploads(); n != 2 {
		t.Fatalf("%d uploads are left, want two that are young", n)
	}
	srv.Age(25 * time.Hour)
	if _, err := s.Put(t.Context(), "large", data); err != nil {
		t.Fatal(err)
	}
	if n := srv.Uploads(); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// An answer that is lost after a small object was written is no rival.
func TestPut_whoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	var lost atomic.Bool
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "PutObject" && lost.CompareAndSwap(false, true) {
			return &buckettest.Fault{After: true}
		}
		return nil
	}
	if _, err := s.Put(t.Context(), "o", []byte("mine")); err != nil {
		t.Errorf("Put: %v", err)
	}
	if !lost.Load() {
		t.Error("no answer was lost")
	}
}

// A download that breaks goes on where it broke; one that never gets further is given up, and one of an object that changed is no mix.
func TestGet_thatBreaksOff(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	data := bytes.Repeat([]byte("0123456789"), 1000)
	if _, err := s.Put(t.Context(), "o", data); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "GetObject" && reads.Add(1) < 6 {
			return &buckettest.Fault{Cut: 1500}
		}
		return nil
	}
	if got, _, err := s.Get(t.Context(), "o"); err != nil || !bytes.Equal(got, data) || reads.Load() < 6 {
		t.Errorf("after %d reads: %d bytes, %v", reads.Load(), len(got), err)
	}
	reads.Store(0)
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op == "GetObject" && reads.Add(1) == 1 {
			return &buckettest.Fault{Cut: 1500}
		}
		if op == "GetObject" {
			return &buckettest.Fault{}
		}
		return nil
	}
	if _, _, err := s.Get(t.Context(), "o"); !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" {
		t.Errorf("a connection that never lasts: %v, want Busy with a hint", err)
	}
	reads.Store(0)
	srv.Intercept = func(op, key string) *buckettest.Fault {
		if op == "GetObject" && reads.Add(1) == 1 {
			return &buckettest.Fault{Cut: 1500}
		}
		if op == "GetObject" {
			srv.Damage(key, func(d []byte) []byte { return append(d, '!') })
		}
		return nil
	}
	if _, _, err := s.Get(t.Context(), "o"); !fault.Is(err, fault.Busy) {
		t.Errorf("an object that changes while it is read: %v, want Busy", err)
	}
}

// Bytes that changed in the bucket are found in every way to read them; bytes that changed in the cache are loaded again.
func TestStore_damageIsFound(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	ctx := t.Context()
	files := map[string]string{"a": "first file", "b": "second file"}
	_, err := s.Put(ctx, "o", []byte("object"))
	if err = errors.Join(err, s.Build(ctx, "d", build(files))); err != nil {
		t.Fatal(err)
	}
	local, err := s.Pull(ctx, "d")
	if err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func(name string) error{
		"a bit":            func(n string) error { return os.WriteFile(n, []byte("first filf"), 0o600) },
		"the size":         func(n string) error { return os.WriteFile(n, []byte("first"), 0o600) },
		"missing":          os.Remove,
		"another file too": func(n string) error { return os.WriteFile(n+".new", nil, 0o600) },
	} {
		if err := damage(filepath.Join(local, "a")); err != nil {
			t.Fatal(err)
		}
		again, err := s.Pull(ctx, "d")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(files, contents(t, again)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	bit := func(d []byte) []byte { d[2] ^= 1; return d }
	for _, key := range srv.Keys() {
		if !srv.Damage(key, bit) {
			t.Fatalf("no %s", key)
		}
	}
	if err := os.RemoveAll(local); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Get":           func() error { _, _, err := s.Get(ctx, "o"); return err },
		"Get in a dir":  func() error { _, _, err := s.Get(ctx, "d/a"); return err },
		"Pull":          func() error { _, err := s.Pull(ctx, "d"); return err },
		"List of a dir": func() error { _, err := s.List(ctx, "d/"); return err },
	} {
		if err := call(); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want Corrupt with a hint", name, err)
		}
	}
	// What cannot be read is made anew.
	if err := s.Build(ctx, "d", build(files)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Get(ctx, "d/b"); err != nil || string(got) != files["b"] {
		t.Errorf("after another Build: %q, %v", got, err)
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

// At whatever request a builder dies, others see the whole old directory or the whole new one; the next builder finishes.
func TestBuild_thatDiesAtAnyRequest(t *testing.T) {
	t.Parallel()
	first := map[string]string{"a": "1", "b": strings.Repeat("large ", 40_000)}
	second := map[string]string{"b": strings.Repeat("Large ", 40_000), "c": "3"}
	for dies := 1; ; dies++ {
		srv := buckettest.New(t)
		if err := store(t, srv.Address("p")).Build(t.Context(), "d", build(first)); err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		s := store(t, srv.Address("p"))
		var n atomic.Int32
		srv.Intercept = func(string, string) *buckettest.Fault {
			if int(n.Add(1)) < dies {
				return nil
			}
			die()
			return &buckettest.Fault{}
		}
		err := s.Build(ctx, "d", build(second))
		die()
		srv.Intercept = nil
		other := store(t, srv.Address("p"))
		local, perr := other.Pull(t.Context(), "d")
		if perr != nil {
			t.Fatalf("died at request %d (%v): Pull: %v", dies, err, perr)
		}
		want := first
		if err == nil {
			want = second
		}
		got := contents(t, local)
		if d := cmp.Diff(want, got); d != "" && !(err != nil && cmp.Equal(got, second)) {
			t.Fatalf("died at request %d (%v) (-want +got):\n%s", dies, err, d)
		}
		if err := other.Build(t.Context(), "d", build(second)); err != nil {
			t.Fatalf("died at request %d: the next Build: %v", dies, err)
		}
		if names, err := other.List(t.Context(), ""); err != nil || !slices.Equal(names, []string{"d/b", "d/c"}) {
			t.Fatalf("died at request %d: the store lists %v, %v", dies, names, err)
		}
		if err == nil {
			if dies < 8 {
				t.Errorf("a Build makes %d requests: the test sees too few of them", dies)
			}
			return
		}
	}
}

// The files that nothing names any more go when nobody can be uploading them.
func TestBuild_sweepsOldFiles(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	folders := func() int {
		seen := map[string]bool{}
		for _, k := range srv.Keys() {
			if _, rest, ok := strings.Cut(k, "@g-"); ok {
				seen[rest[:32]] = true
			}
		}
		return len(seen)
	}
	for i, want := range []int{1, 2, 1} {
		if i == 2 {
			srv.Age(25 * time.Hour)
		}
		if err := s.Build(t.Context(), "d", build(map[string]string{"f": fmt.Sprint(i)})); err != nil {
			t.Fatal(err)
		}
		if got := folders(); got != want {
			t.Errorf("after Build %d the bucket holds files of %d contents, want %d: %v", i, got, want, srv.Keys())
		}
	}
}

// Objects are removed in requests of up to 1,000; what a request that failed left is removed by the next call.
func TestRemove_goesByTheThousand(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"), once)
	const objects = 2100
	g := errgroup.Group{}
	g.SetLimit(8)
	for i := range objects {
		g.Go(func() error {
			_, err := s.Put(t.Context(), fmt.Sprintf("run/group-%04d/x.json", i), []byte("x"))
			return err
		})
	}
	if _, err := s.Put(t.Context(), "runs", []byte("of another name")); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	requests := 0
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		if op != "DeleteObjects" {
			return nil
		}
		if requests++; requests == 2 {
			return &buckettest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
		}
		return nil
	}
	if err := s.Remove(t.Context(), "run"); !fault.Is(err, fault.Busy) {
		t.Fatalf("with a request that fails: %v, want Busy", err)
	}
	left, err := s.List(t.Context(), "run/")
	if err != nil || len(left) != objects-1000 {
		t.Errorf("%d objects are left (%v), want those after the first request", len(left), err)
	}
	if err := s.Remove(t.Context(), "run"); err != nil {
		t.Fatal(err)
	}
	if left, err := s.List(t.Context(), ""); err != nil || len(left) != 1 || left[0] != "runs" || requests != 4 {
		t.Errorf("left are %v (%v) after %d requests, want runs after 4", left, err, requests)
	}
}

// Local copies follow the store: what retention removed on another machine goes here, too.
func TestPull_evictsWhatTheStoreHasNoMore(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"), func(o *bucket.Options) { o.Grace = time.Nanosecond })
	other := store(t, srv.Address("p"))
	for _, name := range []string{"c/000001", "c/000002", "c/000003"} {
		if err := s.Build(t.Context(), name, build(map[string]string{"f": name})); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Remove(t.Context(), "c/000001"); err != nil {
		t.Fatal(err)
	}
	local, err := s.Pull(t.Context(), "c/000003")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(local))
	if err != nil || len(entries) != 2 || entries[0].Name() != "000002" {
		t.Errorf("the cache holds %v (%v), want 000002 and 000003", entries, err)
	}
}

// A stream of an object that breaks off says so.
func TestOpen_streamThatNeverLasts(t *testing.T) {
	t.Parallel()
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	if _, err := s.Put(t.Context(), "o", make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	srv.Intercept = func(op, _ string) *buckettest.Fault {
		switch {
		case op != "GetObject":
			return nil
		case reads.Add(1) == 1:
			return &buckettest.Fault{Cut: 100}
		}
		return &buckettest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
	}
	r, err := s.Open(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); !fault.Is(err, fault.Busy) {
		t.Errorf("%d bytes, %v, want Busy", n, err)
	}
}

// A server without checksums on the way is served by the variable of the AWS environment that is for it.
func TestPut_withoutChecksumsOnTheWay(t *testing.T) {
	t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
	srv := buckettest.New(t)
	s := store(t, srv.Address("p"))
	data := bytes.Repeat([]byte("0123456789"), 30_000)
	if _, err := s.Put(t.Context(), "large", data); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Get(t.Context(), "large"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// Two writers at once: the server may tell both to try again, or tell one that the other was quicker and is gone by then.
func TestPut_whileAnotherWriterIsAtWork(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{"ConditionalRequestConflict": http.StatusConflict, "PreconditionFailed": http.StatusPreconditionFailed} {
		for _, times := range []int32{1, 1000} {
			srv := buckettest.New(t)
			s := store(t, srv.Address("p"), once)
			var n atomic.Int32
			srv.Intercept = func(op, _ string) *buckettest.Fault {
				if op == "PutObject" && n.Add(1) <= times {
					return &buckettest.Fault{Status: status, Code: code}
				}
				return nil
			}
			_, err := s.Put(t.Context(), "o", []byte("mine"))
			if times == 1 && err != nil || times > 1 && !fault.Is(err, fault.Busy) {
				t.Errorf("%s %d times: %v", code, times, err)
			}
		}
	}
}

func TestOpen_withoutCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	_, err := open(t, buckettest.New(t).Address("p"))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v (hint %q), want Invalid with the variables", err, fault.HintOf(err))
	}
	t.Setenv("AWS_PROFILE", "absent")
	_, err = open(t, buckettest.New(t).Address("p"))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "AWS_PROFILE") {
		t.Errorf("an absent profile: %v (hint %q), want Invalid with the variable", err, fault.HintOf(err))
	}
}
