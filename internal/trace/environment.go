package trace

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"

	"github.com/steadyrl/steady/internal/fault"
)

// settings are what the environment says of the way to a collector, as far as it is looked at here: the exporter reads it itself, and
// leaves out what it cannot read.
type settings struct{ endpoint, protocol string }

// options are what the exporter must be told of an address for gRPC. One that is a host and a port it takes for an URL, and if the host is
// an address of numbers it goes to its default, localhost, instead. Whether TLS is used it reads itself.
func (s settings) options() []otlptracegrpc.Option {
	if strings.Contains(s.endpoint, "/") || strings.HasPrefix(s.endpoint, "unix:") || strings.HasPrefix(s.endpoint, "dns:") {
		return nil
	}
	return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(s.endpoint)}
}

const prefix = "OTEL_EXPORTER_OTLP_"

// variable returns the value of one of the exporter's variables and the name under which it is set: that for traces counts before the
// one for all signals.
func variable(env func(string) string, name string) (value, from string) {
	for _, from := range []string{prefix + "TRACES_" + name, prefix + name} {
		if v := env(from); v != "" {
			return v, from
		}
	}
	return "", prefix + name
}

// readSettings checks every variable of the exporter that is set. Errors: Invalid.
func readSettings(env func(string) string) (settings, error) {
	var s settings
	invalid := func(from, value, format string, args ...any) error {
		return fault.New(fault.Invalid, "", "%s is %q", from, value).WithHint(format, args...)
	}
	protocol, from := variable(env, "PROTOCOL")
	switch protocol {
	case "":
		protocol = "http/protobuf"
	case "http/protobuf", "grpc":
	default:
		return s, invalid(from, protocol, "set it to http/protobuf or grpc")
	}
	s.protocol = protocol
	s.endpoint, from = variable(env, "ENDPOINT")
	u, err := url.Parse(s.endpoint)
	web := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	switch {
	case err == nil && u.User != nil: // not shown: it may hold a password
		return s, fault.New(fault.Invalid, "", "%s holds a user name", from).WithHint("put credentials into %sHEADERS", prefix)
	case web && u.Host == "", !web && protocol == "http/protobuf":
		return s, invalid(from, s.endpoint, "give the address of a collector with http:// or https://, for example http://localhost:4318")
	case !web && (strings.Contains(s.endpoint, "/") || !strings.Contains(s.endpoint, ":")) && !strings.HasPrefix(s.endpoint, "unix:") && !strings.HasPrefix(s.endpoint, "dns:"):
		return s, invalid(from, s.endpoint, "give the address of a collector, for example http://localhost:4317, or host:port, which is reached by TLS unless %sINSECURE is true", prefix)
	}
	if v, from := variable(env, "HEADERS"); v != "" {
		for _, pair := range strings.Split(v, ",") {
			key, value, ok := strings.Cut(pair, "=")
			_, err := url.PathUnescape(value)
			if !ok || err != nil || strings.TrimSpace(key) == "" {
				return s, fault.New(fault.Invalid, "", "%s cannot be read", from). // not shown: headers hold keys
													WithHint("write key=value pairs with commas between them, values escaped as in an address")
			}
		}
	}
	if v, from := variable(env, "TIMEOUT"); v != "" {
		if ms, err := strconv.Atoi(v); err != nil || ms <= 0 {
			return s, invalid(from, v, "give milliseconds, for example 10000")
		}
	}
	if v, from := variable(env, "COMPRESSION"); v != "" && v != "gzip" && v != "none" {
		return s, invalid(from, v, "set it to gzip or none")
	}
	if v, from := variable(env, "INSECURE"); v != "" && !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
		return s, invalid(from, v, "set it to true or false")
	}
	if v, from := variable(env, "CERTIFICATE"); v != "" {
		pem, err := os.ReadFile(v)
		if err != nil {
			return s, fault.New(fault.Invalid, "", "%s: %w", from, err).WithHint("name a file with the certificate of the collector's authority")
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return s, invalid(from, v, "the file has no certificate in PEM form")
		}
	}
	cert, from := variable(env, "CLIENT_CERTIFICATE")
	key, keyFrom := variable(env, "CLIENT_KEY")
	if (cert == "") != (key == "") {
		return s, fault.New(fault.Invalid, "", "one of %s and %s is set", from, keyFrom).WithHint("set both, or none")
	}
	if cert != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return s, fault.New(fault.Invalid, "", "%s and %s: %w", from, keyFrom, err).WithHint("name a certificate and its key, both in PEM form")
		}
	}
	return s, nil
}
