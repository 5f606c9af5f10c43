package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/steadyrl/steady/internal/fault"
)

// environment reads the standard Temporal environment: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_*, and
// TEMPORAL_CONFIG_FILE with TEMPORAL_PROFILE. Errors: Invalid, also for a client certificate that is not valid now.
func environment(now time.Time) (client.Options, error) {
	const op = "connect"
	opts, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return opts, fault.New(fault.Invalid, op, "Temporal configuration: %w", err).WithHint("%s", environmentHint(err))
	}
	if opts.ConnectionOptions.TLS == nil {
		return opts, nil
	}
	for _, pair := range opts.ConnectionOptions.TLS.Certificates {
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			return opts, fault.New(fault.Invalid, op, "the client certificate cannot be read: %w", err).WithHint("check TEMPORAL_TLS_CLIENT_CERT_PATH")
		}
		switch {
		case now.After(leaf.NotAfter):
			err = fault.New(fault.Invalid, op, "the client certificate of %s ended on %s", leaf.Subject, leaf.NotAfter.UTC().Format(time.RFC3339)).
				WithHint("renew it: TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name it and its key")
		case now.Before(leaf.NotBefore):
			err = fault.New(fault.Invalid, op, "the client certificate of %s begins on %s", leaf.Subject, leaf.NotBefore.UTC().Format(time.RFC3339)).
				WithHint("look at the clock of this machine")
		}
		if err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// environmentHint says which variables an error of reading the environment is about.
func environmentHint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "client cert") || strings.Contains(text, "client key"):
		return "check TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH (or ..._DATA): a PEM certificate and its own key"
	case strings.Contains(text, "server CA"):
		return "check TEMPORAL_TLS_SERVER_CA_CERT_PATH (or ..._DATA): PEM certificates"
	}
	return "check the variables TEMPORAL_CONFIG_FILE and TEMPORAL_PROFILE, and the file that they name"
}

// probe makes a TLS connection to a server that a client could not reach, and returns what the server says about it: a client often meets only
// the end of the connection.
func probe(ctx context.Context, opts client.Options) error {
	if opts.ConnectionOptions.TLS == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conf := opts.ConnectionOptions.TLS.Clone()
	conf.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", cmp.Or(opts.HostPort, client.DefaultHostPort))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // a server that accepts us speaks first
	if err != nil && strings.Contains(err.Error(), "remote error") {
		return err
	}
	return nil
}

func namespaceOf(o client.Options) string {
	if o.Namespace == "" {
		return client.DefaultNamespace
	}
	return o.Namespace
}

// diagnose tells what keeps a client from a server. The causes arrive as text only: gRPC hands errors of the connection on in a message. It is certain
// where waiting for the server cannot help.
func diagnose(err error) (what, hint string, certain bool) {
	text := err.Error()
	_, isDenied := errors.AsType[*serviceerror.PermissionDenied](err)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	const ours = "check TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH: the server wants a certificate of an authority that it knows"
	switch {
	case has("remote error: tls: expired certificate"):
		return "says that our certificate has ended", "renew the client certificate, and look at the clocks of both machines", true
	case has("remote error: tls: certificate required", "remote error: tls: bad certificate", "remote error: tls: unknown certificate", "remote error: tls: handshake failure"):
		return "does not accept our certificate, or there is none", ours, true
	case has("certificate has expired or is not yet valid"):
		return "has a certificate that has ended or has not begun", "renew the server's certificate, and look at the clock of this machine", true
	case has("certificate signed by unknown authority", "x509: ECDSA verification failure", "x509: invalid signature"):
		return "has a certificate of an authority that this machine does not know", "set TEMPORAL_TLS_SERVER_CA_CERT_PATH to the certificate of the server's authority", true
	case has("x509: certificate is valid for", "x509: cannot validate certificate for", "x509: certificate is not valid for any names"):
		return "has a certificate of another name", "set TEMPORAL_TLS_SERVER_NAME to the name in the server's certificate, or connect by that name", true
	case has("first record does not look like a TLS handshake"):
		return "does not speak TLS", "unset the variables TEMPORAL_TLS* and TEMPORAL_API_KEY, or set TEMPORAL_TLS=false", true
	case has("error reading server preface"):
		return "ends the connection at once: it may want TLS, or a certificate", "set TEMPORAL_TLS=true, and if it wants a certificate TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH", false
	case isDenied || has("Unauthenticated", "Request unauthorized", "unauthorized"):
		return "does not accept who we are", "check TEMPORAL_API_KEY and TEMPORAL_NAMESPACE, or the rights of the client certificate", true
	}
	return "does not answer", "start `steady dev`, or set TEMPORAL_ADDRESS", false
}
