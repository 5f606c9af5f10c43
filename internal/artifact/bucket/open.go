package bucket

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// Scheme begins the addresses of such stores.
const Scheme = "s3://"

// Place is where a store is.
type Place struct {
	Bucket string
	// Prefix of all keys, "" or with a slash at its end.
	Prefix string
	// Region, "" for that of the AWS environment; Endpoint is the URL of a server other than Amazon's, "" for the environment's.
	Region, Endpoint string
	// PathStyle puts the bucket into the path and not into the host's name; so it is by default with an endpoint.
	PathStyle bool
}

// Parse reads "s3://bucket/prefix?region=...&endpoint=...&path-style=true". Errors: Invalid.
func Parse(address string) (Place, error) {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "bucket.Parse", "artifact store "+format, args...).
			WithHint("write s3://bucket/prefix?region=eu-central-1, and &endpoint=https://host:9000 for a server that is not Amazon's; credentials come from the AWS environment")
	}
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, Scheme) {
		return Place{}, bad("address is no s3:// URL") // without the text, which may hold a secret
	}
	if u.User != nil || u.Fragment != "" {
		return Place{}, bad("s3://%s has a user, a password or a fragment", u.Host)
	}
	p := Place{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if p.Bucket == "" || strings.Contains(p.Bucket, ":") {
		return Place{}, bad("address has no bucket before its path, or a port after it")
	}
	if p.Prefix != "" {
		if err := artifact.CheckName(p.Prefix); err != nil {
			return Place{}, bad("prefix %q is no name: want letters, digits, '.', '_' and '-' with single slashes", p.Prefix)
		}
		p.Prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Place{}, bad("address has a query that cannot be read")
	}
	p.Region, p.Endpoint = query.Get("region"), query.Get("endpoint")
	p.PathStyle = p.Endpoint != ""
	if text := query.Get("path-style"); text != "" {
		if p.PathStyle, err = strconv.ParseBool(text); err != nil {
			return Place{}, bad("has path-style=%q, want true or false", text)
		}
	}
	for key, values := range query {
		if !slices.Contains([]string{"region", "endpoint", "path-style"}, key) || len(values) != 1 {
			return Place{}, bad("has the setting %q, want region, endpoint and path-style, each once", key)
		}
	}
	if p.Endpoint != "" {
		e, err := url.Parse(p.Endpoint)
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" {
			return Place{}, bad("has an endpoint that is no plain http:// or https:// URL of a host")
		}
	}
	return p, nil
}

// String is the address, in a form that Parse reads.
func (p Place) String() string {
	query := url.Values{}
	if p.Region != "" {
		query.Set("region", p.Region)
	}
	if p.Endpoint != "" {
		query.Set("endpoint", p.Endpoint)
	}
	if p.PathStyle != (p.Endpoint != "") {
		query.Set("path-style", strconv.FormatBool(p.PathStyle))
	}
	out := Scheme + p.Bucket
	if p.Prefix != "" {
		out += "/" + strings.TrimSuffix(p.Prefix, "/")
	}
	if len(query) > 0 {
		out += "?" + query.Encode()
	}
	return out
}

// Options of a store.
type Options struct {
	Place
	// Cache is a local directory for copies of directories and for scratch. Several processes of one machine may share it.
	Cache string
	// ReadOnly opens a store that must be there; nothing is written by the opening.
	ReadOnly bool
	// Part is the size of the parts of an upload in bytes; objects that are not larger go in one request. Default: 64 MiB.
	Part int64
	// Stall is how long a connection may stand still. Default: one minute.
	Stall time.Duration
	// Attempts at a request that fails in a way that may pass, before the caller hears of it. Default: 4.
	Attempts int
	// Grace is how long a local copy stays that the store does not have. Default: one hour.
	Grace time.Duration
}

// Store is an artifact.Store in a bucket.
type Store struct {
	o   Options
	api *s3.Client

	mu      sync.Mutex
	folders map[string]bool          // names that are known not to be objects
	seen    map[string]bool          // directories that have appeared
	locks   map[string]chan struct{} // of local copies
}

var _ artifact.Store = (*Store)(nil)

// Open connects to a store. It finds out whether the server keeps conditional writes, without which two writers could both believe
// to have written an object.
//
// Errors: Invalid (no credentials or wrong ones, no such bucket, no right, a server without conditional writes), NotFound (ReadOnly, and no store is
// there), Busy (the server does not answer).
func Open(ctx context.Context, o Options) (*Store, error) {
	const op = "bucket.Open"
	o.Attempts = cmp.Or(o.Attempts, 4)
	o.Part, o.Stall, o.Grace = cmp.Or(o.Part, 64<<20), cmp.Or(o.Stall, time.Minute), cmp.Or(o.Grace, time.Hour)
	abs, err := filepath.Abs(o.Cache)
	if err == nil {
		err = os.MkdirAll(abs, 0o755) //nolint:gosec // as every directory of the store
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "the cache of the artifact store: %w", err).WithHint("give a directory that can be written")
	}
	o.Cache = abs
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithHTTPClient(httpClient(o.Stall)),
		config.WithLogger(logging.Nop{}), // what matters comes as an error
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts, r.MaxBackoff = o.Attempts, 2*time.Second })
		}))
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "the AWS environment cannot be read: %w", err).
			WithHint("check AWS_PROFILE, AWS_CONFIG_FILE and the other variables that begin with AWS_")
	}
	if o.Region = cmp.Or(o.Region, cfg.Region); o.Region == "" {
		if o.Endpoint == "" && cfg.BaseEndpoint == nil {
			return nil, fault.New(fault.Invalid, op, "no region is given for the bucket %s", o.Bucket).
				WithHint("set AWS_REGION, or add ?region=... to the address of the store")
		}
		o.Region = "us-east-1" // what servers with an endpoint of their own want to see in signatures
	}
	cfg.Region = o.Region
	if cfg.Credentials == nil {
		return nil, noCredentials(op, errors.New("the environment has none"))
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, noCredentials(op, err)
	}
	s := &Store{o: o, folders: map[string]bool{}, seen: map[string]bool{}, locks: map[string]chan struct{}{}}
	s.api = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.UsePathStyle = o.PathStyle
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
	})
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func noCredentials(op string, err error) error {
	return fault.New(fault.Invalid, op, "no AWS credentials: %w", err).
		WithHint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine or the pod a role")
}

// httpClient bounds how long a connection stands still, however large what passes through it is.
func httpClient(stall time.Duration) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		dial := (&net.Dialer{Timeout: min(stall, 10*time.Second), KeepAlive: 30 * time.Second}).DialContext
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &movingConn{Conn: c, stall: stall}, nil
		}
		t.IdleConnTimeout = stall / 2
		t.MaxIdleConnsPerHost = 32
		t.ResponseHeaderTimeout = 5 * stall // a server may take a while to put the parts of a large object together
	})
}

// movingConn ends a write that stands still for too long, and a read in the middle of a body. The wait for an answer is bounded by the transport.
type movingConn struct {
	net.Conn
	stall time.Duration
}

func (c *movingConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(5 * c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// storeFile says that a prefix of a bucket is a store.
const storeFile = "@steady.json"

// begin finds the store, or makes it, and tries a conditional write.
func (s *Store) begin(ctx context.Context) error {
	const op = "bucket.Open"
	key := s.o.Prefix + storeFile
	if s.o.ReadOnly {
		_, err := s.head(ctx, key)
		if fault.Is(err, fault.NotFound) {
			if _, err := s.isDir(ctx, "runs"); err != nil { // the bucket, or a right, is missing
				return s.atOpening(err)
			}
			return fault.New(fault.NotFound, op, "there is no artifact store at %s", s).WithHint("name the store that the workers have")
		}
		return s.atOpening(err)
	}
	text := []byte(`{"format": 1}` + "\n")
	err := s.put(ctx, key, text, artifact.Digest(text), true)
	if err == nil { // it was not there: now it must not be written again
		err = s.put(ctx, key, text, artifact.Digest(text), true)
		if err == nil {
			return fault.New(fault.Invalid, op, "the server of %s writes an object that exists in spite of If-None-Match: two writers could both win", s).
				WithHint("use a server with conditional writes, such as Amazon S3, MinIO, Ceph from Squid on, or Versity Gateway")
		}
	}
	if errors.Is(err, errExists) {
		return nil
	}
	if fault.Is(err, fault.Invalid) { // who may not write the store's own object may still read it
		if _, herr := s.head(ctx, key); herr == nil {
			return nil
		}
	}
	return s.atOpening(err)
}

// atOpening makes what a running worker would wait for a reason not to start, if a person has to do something about it.
func (s *Store) atOpening(err error) error {
	if errors.Is(err, errNoBucket) || errors.Is(err, errClosed) {
		return fault.New(fault.Invalid, "bucket.Open", "%w", err).WithHint("%s", fault.HintOf(err))
	}
	return err
}
