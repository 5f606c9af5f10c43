package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/steadyrl/steady/internal/fault"
)

// authority signs certificates and writes them as files.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), name: name}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.key = key
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME.key, valid until some time from now on.
func (a *authority) issue(name string, valid time.Duration, hosts ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", private)
	pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// tlsFrontend answers the first question of a client, if it brings the key.
type tlsFrontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	key string
}

func (f tlsFrontend) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if f.key != "" && strings.Join(md.Get("authorization"), "") != "Bearer "+f.key {
		return nil, status.Error(codes.PermissionDenied, "Request unauthorized.")
	}
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

// serve starts a server; without a configuration it does not speak TLS.
func serve(t *testing.T, key string, c *tls.Config) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opts []grpc.ServerOption
	if c != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(c)))
	}
	s := grpc.NewServer(opts...)
	workflowservice.RegisterWorkflowServiceServer(s, tlsFrontend{key: key})
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// The whole standard environment against servers with TLS, client certificates and keys: what is right connects, and every mistake says
// what is wrong and which variable is about it.
func TestConnect_followsTheStandardEnvironment(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "other")
	server := ca.issue("server", time.Hour, "127.0.0.1")
	named := ca.issue("named", time.Hour, "temporal.internal")
	stale := ca.issue("stale", -time.Minute, "127.0.0.1")
	ca.issue("client", time.Hour)
	ca.issue("ended", -time.Minute)
	other.issue("stranger", time.Hour)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	mutual := func(c tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{c}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	}
	oneSided := &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: tls.VersionTLS12}
	profile := filepath.Join(t.TempDir(), "temporal.toml")
	text := "[profile.prod]\naddress = \"ADDRESS\"\nnamespace = \"from-file\"\napi_key = \"sesame\"\n[profile.prod.tls]\nserver_ca_cert_path = \"" + ca.path("ca.pem") + "\"\n"

	const (
		caPath, certPath, keyPath = "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"
	)
	with := func(pairs ...string) map[string]string {
		env := map[string]string{caPath: ca.path("ca.pem"), certPath: ca.path("client.pem"), keyPath: ca.path("client.key")}
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
		return env
	}
	cases := []struct {
		name      string
		tls       *tls.Config
		key       string
		env       map[string]string
		namespace string
		code      int // exit status, 0 for a connection
		says      string
		hint      string
		wait      bool // the server may come up
	}{
		{name: "plain", env: map[string]string{}, namespace: "default"},
		{name: "namespace", env: map[string]string{"TEMPORAL_NAMESPACE": "prod"}, namespace: "prod"},
		{name: "mutual TLS", tls: mutual(server), env: with(), namespace: "default"},
		{name: "another name", tls: mutual(named), env: with("TEMPORAL_TLS_SERVER_NAME", "temporal.internal"), namespace: "default"},
		{name: "API key", tls: oneSided, key: "sesame", env: map[string]string{caPath: ca.path("ca.pem"), "TEMPORAL_API_KEY": "sesame"}, namespace: "default"},
		{name: "profile", tls: oneSided, key: "sesame", env: map[string]string{"TEMPORAL_CONFIG_FILE": profile, "TEMPORAL_PROFILE": "prod"}, namespace: "from-file"},

		{name: "unknown authority", tls: mutual(server), env: with(caPath, other.path("ca.pem")), code: exitUnreachable, says: "does not know", hint: caPath},
		{name: "no authority", tls: oneSided, env: map[string]string{"TEMPORAL_TLS": "true"}, code: exitUnreachable, says: "does not know", hint: caPath},
		{name: "name differs", tls: mutual(named), env: with(), code: exitUnreachable, says: "another name", hint: "TEMPORAL_TLS_SERVER_NAME"},
		{name: "server's ended", tls: mutual(stale), env: with(), code: exitUnreachable, says: "has ended", hint: "renew the server's"},
		{
			name: "no client certificate", tls: mutual(server), env: map[string]string{caPath: ca.path("ca.pem")},
			code: exitUnreachable, says: "certificate", hint: certPath,
		},
		{
			name: "a stranger's certificate", tls: mutual(server), env: with(certPath, other.path("stranger.pem"), keyPath, other.path("stranger.key")),
			code: exitUnreachable, says: "certificate", hint: certPath,
		},
		{name: "TLS to a plain server", env: with(), code: exitUnreachable, says: "does not speak TLS", hint: "TEMPORAL_TLS"},
		{name: "plain to a TLS server", tls: oneSided, env: map[string]string{}, code: exitUnreachable, says: "TLS", hint: "TEMPORAL_TLS", wait: true},
		{
			name: "wrong API key", tls: oneSided, key: "sesame", env: map[string]string{caPath: ca.path("ca.pem"), "TEMPORAL_API_KEY": "open-up"},
			code: exitUnreachable, says: "unauthorized", hint: "TEMPORAL_API_KEY",
		},
		{name: "client's ended", tls: mutual(server), env: with(certPath, ca.path("ended.pem"), keyPath, ca.path("ended.key")), code: exitUsage, says: "ended on", hint: "renew"},
		{name: "no key", tls: mutual(server), env: with(keyPath, ""), code: exitUsage, says: "other must be present", hint: keyPath},
		{name: "key of another", tls: mutual(server), env: with(keyPath, ca.path("server.key")), code: exitUsage, says: "private key does not match", hint: keyPath},
		{name: "key file is missing", tls: mutual(server), env: with(keyPath, ca.path("none.key")), code: exitUsage, says: "no such file", hint: keyPath},
		{name: "authority's file is missing", tls: mutual(server), env: with(caPath, ca.path("none.pem")), code: exitUsage, says: "no such file", hint: caPath},
		{name: "authority's file is none", tls: mutual(server), env: with(caPath, ca.path("client.key")), code: exitUsage, says: "CA pool", hint: caPath},
		{name: "unknown profile", env: map[string]string{"TEMPORAL_CONFIG_FILE": profile, "TEMPORAL_PROFILE": "tset"}, code: exitUsage, says: "tset", hint: "TEMPORAL_PROFILE"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			address := serve(t, c.key, c.tls)
			for _, v := range os.Environ() {
				if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TEMPORAL_") {
					t.Setenv(name, "") // restores it
					if err := os.Unsetenv(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
			if c.env["TEMPORAL_CONFIG_FILE"] == "" {
				t.Setenv("TEMPORAL_ADDRESS", address)
			} else if err := os.WriteFile(profile, []byte(strings.Replace(text, "ADDRESS", address, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			opts, err := environment(time.Now())
			if err == nil {
				var cl client.Client
				// What waiting cannot cure is not waited for; the rest is tried once.
				wait := time.Hour
				if c.wait {
					wait = 0
				}
				n := newConnector(zap.NewNop())
				n.sleep = func(context.Context, time.Duration) error { return errors.New("waits for the server") }
				if cl, err = n.connect(t.Context(), opts, wait); err == nil {
					cl.Close()
				}
			}
			if c.code == exitDone {
				if err != nil || namespaceOf(opts) != c.namespace {
					t.Errorf("got namespace %q, %v, want a connection to %q", namespaceOf(opts), err, c.namespace)
				}
				return
			}
			code := exitUsage
			if e, ok := errors.AsType[*exitError](err); ok {
				code, err = e.code, e.err
			}
			if code != c.code || err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("exit status %d, %v (hint %q), want %d with %q and a hint about %s", code, err, fault.HintOf(err), c.code, c.says, c.hint)
			}
			if err != nil && strings.Contains(err.Error()+fault.HintOf(err), "open-up") {
				t.Errorf("the key is in the message: %v", err)
			}
		})
	}
}
