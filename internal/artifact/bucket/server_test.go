package bucket_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/artifacttest"
	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/artifact/bucket/buckettest"
	"github.com/steadyrl/steady/internal/fault"
)

// serverVariable holds the program of a real S3-compatible server, Versity Gateway. `make test-s3` builds it and runs these tests.
const serverVariable = "STEADY_TEST_VERSITYGW"

// gateway is a real server on a directory, behind a proxy that stays when the server dies.
type gateway struct {
	t    *testing.T
	dir  string
	URL  string
	see  atomic.Pointer[func(*http.Request)]
	mu   sync.Mutex
	cmd  *exec.Cmd
	port string
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	if os.Getenv(serverVariable) == "" {
		t.Skipf("no real S3-compatible server: `make test-s3` builds one and runs this test")
	}
	g := &gateway{t: t, dir: t.TempDir()}
	for _, d := range []string{"data/" + buckettest.Bucket, "iam"} {
		if err := os.MkdirAll(filepath.Join(g.dir, d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	g.start()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if see := g.see.Load(); see != nil {
				(*see)(r.In)
			}
			r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + g.port})
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as without a proxy
	})
	t.Cleanup(func() { proxy.Close(); g.kill() })
	g.URL = proxy.URL
	return g
}

// start starts the server and waits until it answers.
func (g *gateway) start() {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	_, g.port, _ = net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		g.t.Fatal(err)
	}
	g.cmd = exec.CommandContext(g.t.Context(), os.Getenv(serverVariable), "--port", "127.0.0.1:"+g.port, //nolint:gosec // the test's caller names it
		"--access", buckettest.KeyID, "--secret", buckettest.Secret, "--health", "/health", "posix", filepath.Join(g.dir, "data"))
	var out bytes.Buffer
	g.cmd.Stderr = &out
	pipe, err := g.cmd.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	go io.Copy(io.Discard, bufio.NewReader(pipe)) //nolint:errcheck // nobody reads it
	for range 10_000 {
		res, err := http.Get("http://127.0.0.1:" + g.port + "/health")
		if err == nil {
			_ = res.Body.Close() // only its status is wanted
			return
		}
		if g.cmd.ProcessState != nil {
			break
		}
	}
	g.t.Fatalf("the server does not answer: %s", &out)
}

// kill ends the server as a crash does.
func (g *gateway) kill() {
	if g.cmd != nil && g.cmd.Process != nil {
		_ = g.cmd.Process.Kill() // it may have ended
		_ = g.cmd.Wait()
	}
}

func (g *gateway) address(prefix string) string {
	return "s3://" + buckettest.Bucket + "/" + prefix + "?endpoint=" + g.URL
}

// minPart is the least part of an upload that the protocol allows.
func minPart(o *bucket.Options) { o.Part = 5 << 20 }

func TestServer_conformance(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var n atomic.Int32
	artifacttest.Run(t, func(t *testing.T) artifact.Store {
		return store(t, g.address("part-"+string(rune('a'+n.Add(1)))), minPart)
	})
}

// The server is killed in the middle of an upload of a large object and of a directory: nothing is visible, the caller hears Busy, and when
// the server is back the next try succeeds.
func TestServer_killedInTheMiddleOfAnUpload(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	s := store(t, g.address("p"), minPart, once)
	data := bytes.Repeat([]byte("0123456789abcdef"), 32<<20/16) // seven parts
	files := map[string]string{"a": "small", "b": string(data)}
	for name, write := range map[string]func() error{
		"object":    func() error { _, err := s.Put(t.Context(), "o/large", data); return err },
		"directory": func() error { return s.Build(t.Context(), "d/large", build(files)) },
	} {
		var parts atomic.Int32
		see := func(r *http.Request) {
			if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") && parts.Add(1) == 3 {
				g.kill()
			}
		}
		g.see.Store(&see)
		if err := write(); !fault.Is(err, fault.Busy) || fault.HintOf(err) == "" {
			t.Fatalf("%s: %v, want Busy with a hint", name, err)
		}
		g.see.Store(nil)
		g.mu.Lock()
		g.start()
		g.mu.Unlock()
		if names, err := s.List(t.Context(), name[:1]+"/"); err != nil || len(names) != 0 {
			t.Errorf("%s: after the crash the store lists %v, %v", name, names, err)
		}
		if err := write(); err != nil {
			t.Fatalf("%s: the next try: %v", name, err)
		}
	}
	other := store(t, g.address("p"), minPart)
	if got, _, err := other.Get(t.Context(), "o/large"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the object has %d bytes (%v), want %d", len(got), err, len(data))
	}
	local, err := other.Pull(t.Context(), "d/large")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files, contents(t, local)); d != "" {
		t.Error("the directory differs")
	}
}

func TestServer_wrongCredentials(t *testing.T) {
	g := newGateway(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another/secret")
	_, err := open(t, g.address("p"))
	if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "another/secret") {
		t.Errorf("a wrong secret: %v, want Invalid with a hint", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", buckettest.Secret)
	_, err = open(t, strings.Replace(g.address("p"), buckettest.Bucket, "nowhere", 1))
	if !fault.Is(err, fault.Invalid) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bucket that is not there: %v, want Invalid", err)
	}
}
