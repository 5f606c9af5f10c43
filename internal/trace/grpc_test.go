package trace

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/span"
)

// receiver is a collector that speaks OTLP over gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	addr string

	mu    sync.Mutex
	spans map[string]*otlp.Span // by name
	from  map[string]string     // service.instance.id by name of a span
	heads []metadata.MD
	err   error // what it answers
	part  string
}

func (r *receiver) Export(ctx context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	r.heads = append(r.heads, md)
	for _, rs := range q.GetResourceSpans() {
		instance := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				instance = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans[s.GetName()], r.from[s.GetName()] = s, instance
			}
		}
	}
	out := &collector.ExportTraceServiceResponse{}
	if r.part != "" {
		out.PartialSuccess = &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: r.part}
	}
	return out, nil
}

// answer sets the error with which spans are refused; nil takes them.
func (r *receiver) answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *receiver) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name := range r.spans {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// receive starts a collector at a free port.
func receive(t *testing.T, o ...grpc.ServerOption) *receiver {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{addr: ln.Addr().String(), spans: map[string]*otlp.Span{}, from: map[string]string{}}
	s := grpc.NewServer(o...)
	collector.RegisterTraceServiceServer(s, r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// environment sets variables for the exporter, which reads those of the process, and unsets all others of OpenTelemetry.
func environment(t *testing.T, env map[string]string) func(string) string {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	return os.Getenv
}

// Control, rollout, judge and trainer, each a process with a tracer of its own, send a step over gRPC: the collector has one trace, with the
// ids that every process computes, the links, and the headers of the environment with each request.
func TestNew_sendsAStepOfAllRolesByGRPC(t *testing.T) {
	r := receive(t)
	env := environment(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + r.addr, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_EXPORTER_OTLP_HEADERS": "x-team=rl,authorization=Bearer%20abc", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
	})
	step := span.Step{Run: "r", Lineage: "l0", N: 4}
	var tracers []*Tracer
	for _, role := range []string{"control", "rollout", "judge", "trainer"} {
		tr, err := New(t.Context(), Options{Env: env, Namespace: "ns", Worker: role, Version: "v", Failed: func(err error) { t.Error(err) }})
		if err != nil || tr == nil {
			t.Fatalf("got %v, %v", tr, err)
		}
		tracers = append(tracers, tr)
	}
	control, rollout, judge, trainer := tracers[0], tracers[1], tracers[2], tracers[3]
	for _, work := range []struct {
		by          *Tracer
		name, inner string
		err         error
	}{
		{rollout, "GenerateRollouts", "sample", nil},
		{judge, "JudgeRollouts", "judge_submission", fault.New(fault.Infrastructure, "judge", "no sandbox")},
		{control, "SealBatch", "", nil},
		{trainer, "UpdatePolicy", "forward_backward", nil},
	} {
		ctx, end := work.by.Start(work.by.Enter(span.With(t.Context(), work.by), step), work.name, span.Attr{Key: "run", Value: "r"})
		if work.inner != "" {
			_, inner := span.Start(ctx, work.inner)
			inner(nil)
		}
		if work.name == "SealBatch" {
			work.by.Link(ctx, span.Step{Run: "r", Lineage: "l0", N: 3})
		}
		end(work.err)
	}
	began := time.Unix(1000, 0)
	control.Whole(step, began, began.Add(time.Minute))
	for _, tr := range tracers {
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}

	want := []string{"GenerateRollouts", "JudgeRollouts", "SealBatch", "UpdatePolicy", "forward_backward", "judge_submission", "sample", "step 4"}
	if got := r.names(); !slices.Equal(got, want) {
		t.Fatalf("the collector has %v, want %v", got, want)
	}
	root, id := r.spans["step 4"], control.of(step)
	trace, spanID := id.TraceID(), id.SpanID()
	if hex.EncodeToString(root.GetSpanId()) != spanID.String() || len(root.GetParentSpanId()) != 0 || root.GetEndTimeUnixNano()-root.GetStartTimeUnixNano() != uint64(time.Minute) {
		t.Errorf("the span of the step is %v", root)
	}
	parents := map[string]string{"sample": "GenerateRollouts", "judge_submission": "JudgeRollouts", "forward_backward": "UpdatePolicy"}
	for name, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) != trace.String() {
			t.Errorf("%s is in trace %x, want %s", name, s.GetTraceId(), trace)
		}
		above, ok := parents[name]
		if !ok {
			above = "step 4"
		}
		if name != "step 4" && !slices.Equal(s.GetParentSpanId(), r.spans[above].GetSpanId()) {
			t.Errorf("%s does not lie below %s", name, above)
		}
	}
	for name, worker := range map[string]string{"SealBatch": "control", "sample": "rollout", "judge_submission": "judge", "UpdatePolicy": "trainer", "step 4": "control"} {
		if r.from[name] != worker {
			t.Errorf("%s comes from %q, want %s", name, r.from[name], worker)
		}
	}
	before := control.of(span.Step{Run: "r", Lineage: "l0", N: 3}).SpanID()
	if links := r.spans["SealBatch"].GetLinks(); len(links) != 1 || hex.EncodeToString(links[0].GetSpanId()) != before.String() {
		t.Errorf("SealBatch has links %v, want the step before", links)
	}
	if s := r.spans["JudgeRollouts"]; s.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.Contains(s.String(), "Infrastructure") {
		t.Errorf("a failed span says %v", s)
	}
	if len(r.heads) < len(tracers) {
		t.Errorf("%d requests of %d processes", len(r.heads), len(tracers))
	}
	for _, h := range r.heads {
		if !slices.Equal(h.Get("x-team"), []string{"rl"}) || !slices.Equal(h.Get("authorization"), []string{"Bearer abc"}) {
			t.Errorf("a request has the headers %v", h)
		}
	}
}

// pair writes a certificate for 127.0.0.1 that is its own authority, with its key.
func pair(t *testing.T) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return cert, certFile, keyFile
}

// Every way in which the environment chooses between TLS and none, against a collector with and one without: spans arrive, or one
// warning says why not.
func TestNew_choosesTLSByTheEnvironment(t *testing.T) {
	cert, certFile, keyFile := pair(t)
	_, otherFile, _ := pair(t)
	pool := x509.NewCertPool()
	leaf, err := os.ReadFile(certFile)
	if err != nil || !pool.AppendCertsFromPEM(leaf) {
		t.Fatal(err)
	}
	plain := receive(t)
	secure := receive(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})))
	mutual := receive(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	})))
	const p = "OTEL_EXPORTER_OTLP_"
	for name, c := range map[string]struct {
		to   *receiver
		env  map[string]string
		says string // empty: spans arrive
	}{
		"http":                             {plain, map[string]string{p + "ENDPOINT": "http://" + plain.addr}, ""},
		"no scheme, insecure":              {plain, map[string]string{p + "ENDPOINT": plain.addr, p + "INSECURE": "true"}, ""},
		"no scheme, insecure, traces":      {plain, map[string]string{p + "TRACES_ENDPOINT": plain.addr, p + "TRACES_INSECURE": "true"}, ""},
		"no scheme, a name, insecure":      {plain, map[string]string{p + "ENDPOINT": strings.Replace(plain.addr, "127.0.0.1", "localhost", 1), p + "INSECURE": "true"}, ""},
		"no scheme is TLS":                 {plain, map[string]string{p + "ENDPOINT": plain.addr}, "TLS handshake"},
		"https to one without":             {plain, map[string]string{p + "ENDPOINT": "https://" + plain.addr}, "TLS handshake"},
		"https":                            {secure, map[string]string{p + "ENDPOINT": "https://" + secure.addr, p + "CERTIFICATE": certFile}, ""},
		"https, traces":                    {secure, map[string]string{p + "TRACES_ENDPOINT": "https://" + secure.addr, p + "TRACES_CERTIFICATE": certFile}, ""},
		"no scheme is TLS, with authority": {secure, map[string]string{p + "ENDPOINT": secure.addr, p + "CERTIFICATE": certFile}, ""},
		"another authority":                {secure, map[string]string{p + "ENDPOINT": "https://" + secure.addr, p + "CERTIFICATE": otherFile}, "certificate"},
		"the machine's authorities":        {secure, map[string]string{p + "ENDPOINT": "https://" + secure.addr}, "certificate"},
		"http to one with":                 {secure, map[string]string{p + "ENDPOINT": "http://" + secure.addr}, "takes no spans by grpc"},
		"mutual": {mutual, map[string]string{
			p + "ENDPOINT": "https://" + mutual.addr, p + "CERTIFICATE": certFile, p + "CLIENT_CERTIFICATE": certFile, p + "CLIENT_KEY": keyFile,
		}, ""},
		"mutual without ours": {mutual, map[string]string{p + "ENDPOINT": "https://" + mutual.addr, p + "CERTIFICATE": certFile}, "takes no spans by grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			c.env[p+"PROTOCOL"] = "grpc"
			if c.says != "" {
				c.env[p+"TIMEOUT"] = "200" // milliseconds, for which it is tried again
			}
			told := make(chan error, 1)
			tr, err := New(t.Context(), Options{Env: environment(t, c.env), Worker: name, Failed: func(err error) { told <- err }})
			if err != nil {
				t.Fatal(err)
			}
			_, end := tr.Start(tr.Enter(t.Context(), span.Step{Run: "r", Lineage: "l0", N: 1}), name)
			end(nil)
			if err := tr.provider.ForceFlush(t.Context()); err != nil {
				t.Fatal(err)
			}
			arrived := slices.Contains(c.to.names(), name)
			var warning error
			select {
			case warning = <-told:
			default:
			}
			if arrived != (c.says == "") || (warning == nil) != arrived {
				t.Errorf("the span arrived: %v, with the warning %v", arrived, warning)
			}
			if warning != nil && (!strings.Contains(warning.Error(), c.says) || !strings.Contains(warning.Error(), c.to.addr) || fault.HintOf(warning) == "") {
				t.Errorf("the warning is %q with hint %q, want %q and the address", warning, fault.HintOf(warning), c.says)
			}
			if err := tr.Close(); (err == nil) != arrived {
				t.Errorf("closed with %v", err)
			}
		})
	}
}

// A collector that is away costs nothing but spans: work goes on, one warning for the whole time, one line when it is back.
func TestNew_aCollectorThatIsAwayIsToldOnce(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			env := environment(t, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_TIMEOUT": "100",
			})
			var mu sync.Mutex
			var told []error
			tr, err := New(t.Context(), Options{Env: env, Worker: "w", Failed: func(err error) { mu.Lock(); defer mu.Unlock(); told = append(told, err) }})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, end := tr.Start(tr.Enter(t.Context(), span.Step{Run: "r", Lineage: "l0", N: 1}), "work")
				end(nil)
				if err := tr.provider.ForceFlush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_, end := tr.Start(t.Context(), "the last")
			end(nil)
			err = tr.Close()
			if !fault.Is(err, fault.Busy) || !strings.Contains(err.Error(), "4 spans") || fault.HintOf(err) == "" {
				t.Errorf("closed with %v, want Busy with the number of spans and a hint", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(told) != 1 || !strings.Contains(told[0].Error(), "127.0.0.1:1") || !strings.Contains(told[0].Error(), "refused") || !strings.Contains(told[0].Error(), protocol) {
				t.Errorf("%d warnings, want one with address, protocol and reason: %v", len(told), told)
			}
		})
	}
}

func TestNew_aCollectorThatComesBackIsTold(t *testing.T) {
	r := receive(t)
	env := environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + r.addr, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TIMEOUT": "2000"})
	var told []string // by the goroutine that flushes, which ForceFlush waits for
	tr, err := New(t.Context(), Options{
		Env: env, Worker: "w", Failed: func(err error) { told = append(told, err.Error()) }, Again: func(lost int) { told = append(told, "again") },
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(name string) {
		_, end := tr.Start(t.Context(), name)
		end(nil)
		if err := tr.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	send("one")
	r.answer(status.Error(codes.PermissionDenied, "no such token"))
	send("two")
	send("three")
	r.answer(nil)
	send("four")
	r.answer(status.Error(codes.Internal, "broken"))
	send("five")
	r.answer(nil)
	send("six")
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if len(told) != 4 || !strings.Contains(told[0], "no such token") || told[1] != "again" || !strings.Contains(told[2], "broken") || told[3] != "again" {
		t.Errorf("told was %q", told)
	}
	if got := r.names(); !slices.Equal(got, []string{"four", "one", "six"}) {
		t.Errorf("the collector has %v", got)
	}
}

// A collector that takes a part of every batch only is told once for each reason.
func TestNew_aPartialRefusalIsToldOnce(t *testing.T) {
	r := receive(t)
	r.part = "too many attributes"
	env := environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + r.addr, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
	var told []string
	tr, err := New(t.Context(), Options{Env: env, Failed: func(err error) { told = append(told, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, end := tr.Start(t.Context(), "work")
		end(nil)
		if err := tr.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if len(told) != 1 || !strings.Contains(told[0], "too many attributes") {
		t.Errorf("told was %q", told)
	}
}

// What the exporter would leave out with a line of its own at best is a mistake here, with the name of the variable; secrets are not shown.
func TestNew_refusesAnEnvironmentThatCannotWork(t *testing.T) {
	t.Parallel()
	_, certFile, keyFile := pair(t)
	_, _, otherKey := pair(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const at = "http://127.0.0.1:1"
	for _, c := range []struct {
		name, value string
		with        []string
	}{
		{"ENDPOINT", "localhost:4318", nil},
		{"ENDPOINT", "collector", nil},
		{"ENDPOINT", "http://", nil},
		{"ENDPOINT", "http://a b", nil},
		{"ENDPOINT", "https://me:secret@host:4318", nil},
		{"ENDPOINT", "collector", []string{"PROTOCOL", "grpc"}},
		{"ENDPOINT", "host:4317/v1/traces", []string{"PROTOCOL", "grpc"}},
		{"ENDPOINT", "tcp://host:4317", []string{"PROTOCOL", "grpc"}},
		{"TRACES_PROTOCOL", "http/json", nil},
		{"HEADERS", "secret", nil},
		{"HEADERS", "a=b,=secret", nil},
		{"TRACES_HEADERS", "a=%zzsecret", nil},
		{"TIMEOUT", "10s", nil},
		{"TIMEOUT", "0", nil},
		{"COMPRESSION", "zstd", nil},
		{"INSECURE", "yes", nil},
		{"CERTIFICATE", filepath.Join(filepath.Dir(empty), "none.pem"), nil},
		{"CERTIFICATE", empty, nil},
		{"TRACES_CERTIFICATE", keyFile, nil},
		{"CLIENT_CERTIFICATE", certFile, nil},
		{"CLIENT_KEY", keyFile, nil},
		{"CLIENT_CERTIFICATE", certFile, []string{"CLIENT_KEY", otherKey}},
	} {
		env := map[string]string{prefix + "ENDPOINT": at, prefix + c.name: c.value}
		if len(c.with) > 0 {
			env[prefix+c.with[0]] = c.with[1]
		}
		_, err := New(t.Context(), Options{Env: func(k string) string { return env[k] }})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), prefix+c.name) || fault.HintOf(err) == "" || strings.Contains(err.Error()+fault.HintOf(err), "secret") {
			t.Errorf("%s=%s: got %v with hint %q, want Invalid with the variable and a hint, without secrets", c.name, c.value, err, fault.HintOf(err))
		}
	}
}
