package external

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// The dialects.
const (
	VLLM   = "vllm"   // POST /v1/completions, with vLLM's additions to it
	SGLang = "sglang" // POST /generate
)

// Options say which server to use and what is needed of it.
type Options struct {
	// URL is the server's root, for example http://host:8000; a final slash or /v1 is ignored.
	URL     string
	Dialect string // VLLM or SGLang
	// Model is the name under which the server knows the model (SGLang: its model path).
	Model string
	// Key, if set, is sent as a bearer token. It stands in no error.
	Key string
	// Config is the model's; ids, record widths and lengths are checked against it.
	Config model.Config
	// Version is the policy version that the server serves. Nothing can change it.
	Version int
	// TopK is the widest record that requests may ask for; 0 means 1.
	TopK int
	// Context is the longest sequence, prompt and response; 0 means Config.MaxPosition.
	Context int
	// Tolerance is the largest difference, in nats, between two ways in which the server computes a log-probability. 0 means 0.1, which fits
	// BF16.
	Tolerance float64
	// Idle is how long the server may send nothing before a request is given up as Lost; 0 means 2 minutes.
	Idle time.Duration
	// Client sends the requests; nil means one without a time limit of its own. Redirects are never followed.
	Client *http.Client
}

// complete checks o and fills in defaults.
func (o Options) complete() (Options, error) {
	const op = "external.New"
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return o, fault.New(fault.Invalid, op, "the URL of the server must be http://HOST:PORT or https://HOST:PORT").
			WithHint("a key goes into its own option, not into the URL")
	}
	if err := o.Config.Check(); err != nil {
		return o, err
	}
	o.URL = strings.TrimSuffix(strings.TrimRight(o.URL, "/"), "/v1")
	if o.TopK == 0 {
		o.TopK = 1
	}
	if o.Context == 0 {
		o.Context = o.Config.MaxPosition
	}
	if o.Tolerance == 0 {
		o.Tolerance = 0.1
	}
	if o.Idle == 0 {
		o.Idle = 2 * time.Minute
	}
	switch {
	case !slices.Contains([]string{VLLM, SGLang}, o.Dialect):
		return o, fault.New(fault.Invalid, op, "unknown dialect %q", o.Dialect).WithHint("it is %s or %s", VLLM, SGLang)
	case o.Model == "":
		return o, fault.New(fault.Invalid, op, "the name of the model is missing").WithHint("give the name that the server lists")
	case o.Version < 0 || o.TopK < 0 || o.TopK > o.Config.Vocab || o.Context < 1 || o.Context > o.Config.MaxPosition:
		return o, fault.New(fault.Invalid, op, "version %d, records of %d, context of %d; the vocabulary has %d tokens, the model %d positions",
			o.Version, o.TopK, o.Context, o.Config.Vocab, o.Config.MaxPosition)
	case !(o.Tolerance > 0) || math.IsInf(o.Tolerance, 0) || o.Idle < 0:
		return o, fault.New(fault.Invalid, op, "tolerance %v, idle time %v", o.Tolerance, o.Idle)
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	return o, nil
}

// New connects to a server and proves that it can do what is needed; see the package.
//
// Errors: Invalid (the options, or a server that lacks something; the hint says how to start it), Busy (it is loading or
// overloaded), Lost (it cannot be reached, or hangs), and that of ctx.
func New(ctx context.Context, o Options) (*Sampler, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := newSampler(o)
	if err := s.prove(ctx); err != nil {
		_ = s.Close() // never fails
		return nil, err
	}
	return s, nil
}
