package live

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/report"
	"github.com/steadyrl/steady/internal/transcript"
)

//go:embed assets
var assets embed.FS

var (
	pages  = template.Must(template.ParseFS(assets, "assets/*.html"))
	script = must(assets.ReadFile("assets/live.js"))
	style  = append([]byte(report.Style()), must(assets.ReadFile("assets/live.css"))...)
	// built is a digest of all that shapes a page besides the records, so that a page of another build is not taken for the same.
	built = digestAssets()
)

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err) // the file is embedded: this cannot happen in a program that was built
	}
	return data
}

func digestAssets() string {
	sum := sha256.New()
	_ = fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			sum.Write(must(assets.ReadFile(name)))
		}
		return err
	})
	sum.Write(style)
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// Options are settings of a Server.
type Options struct {
	Store artifact.Store
	// Version is that of the program; another one makes other entity tags.
	Version string
	// Refresh is how often an open page looks for news, in seconds; default 5.
	Refresh int
	// Patience is how long a request waits for the files of a filter to be read before it shows what has been; default 2 s.
	Patience time.Duration
	// Loopback refuses requests whose Host header names another machine, as a page of a stranger that has this one's address in
	// its name server would send.
	Loopback bool
}

// Server answers with pages about the runs of a store.
//
// Concurrency: ServeHTTP may be called from any goroutine. Close ends work in the background and waits for it.
type Server struct {
	o     Options
	c     *Cache
	mux   *http.ServeMux
	ctx   context.Context //nolint:containedctx // of the work in the background, which outlives a request
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	runs    map[record.Layout]*lineage
	reports map[record.Layout]madePage

	maths sync.Mutex // held while corrections are computed: one at a time, each is work for a core
	terms map[termKey][]float64
}

// madePage is a report with its tag.
type madePage struct {
	tag  string
	body []byte
}

// termKey names the corrections of a trajectory.
type termKey struct {
	l     record.Layout
	batch string // digest of its trajectory file
	at    place
}

// lineage is what the server keeps of a lineage between requests.
type lineage struct {
	mu     sync.Mutex // held while the lineage is looked at, so that equal work is done once
	view   *view
	status *Status
	index  *index
}

// New returns a server. Close it.
func New(o Options) *Server {
	if o.Refresh <= 0 {
		o.Refresh = 5
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Second
	}
	s := &Server{o: o, c: NewCache(o.Store), mux: http.NewServeMux(), runs: map[record.Layout]*lineage{}, reports: map[record.Layout]madePage{}, terms: map[termKey][]float64{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for pattern, h := range map[string]func(*http.Request) (*answer, error){
		"/{$}":                                s.home,
		"/compare":                            s.compare,
		"/runs/{run}/{$}":                     s.report,
		"/runs/{run}/trajectories":            s.browse,
		"/runs/{run}/groups/{group}":          s.group,
		"/runs/{run}/groups/{group}/{sample}": s.groupSample,
		"/runs/{run}/validations/{validation}/{problem}/{sample}": s.validationSample,
		"/runs/{run}/ledger":   s.ledger,
		"/runs/{run}/failures": s.failures,
	} {
		s.mux.Handle("GET "+pattern, s.handler(h))
	}
	s.mux.HandleFunc("GET /style.css", asset("text/css; charset=utf-8", style))
	s.mux.HandleFunc("GET /live.js", asset("text/javascript; charset=utf-8", script))
	s.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.mux.Handle("GET /", s.handler(func(r *http.Request) (*answer, error) {
		return nil, fault.New(fault.NotFound, "live", "there is no page %s", r.URL.Path).WithHint("begin with the list of runs")
	}))
	return s
}

// Cache is what the server reads through.
func (s *Server) Cache() *Cache { return s.c }

// Close ends work in the background.
func (s *Server) Close() {
	s.stop()
	s.tasks.Wait()
}

// background runs f until Close.
func (s *Server) background(f func()) { s.tasks.Go(f) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if s.o.Loopback && !loopback(r.Host) {
		http.Error(w, "this server answers for localhost only", http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the pages only show", http.StatusMethodNotAllowed)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// loopback reports whether a Host header names this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func asset(kind string, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", `"`+built+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// answer is a page. A tag identifies its content; the body is made only if the browser does not have it.
type answer struct {
	tag  string // empty: none
	body func() ([]byte, error)
}

// handler turns an answer or an error into a response.
func (s *Server) handler(f func(*http.Request) (*answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := f(r)
		var body []byte
		if err == nil {
			if a.tag != "" {
				tag := `"` + a.tag + `"`
				w.Header().Set("ETag", tag)
				if r.Header.Get("If-None-Match") == tag {
					w.WriteHeader(http.StatusNotModified)
					return
				}
			}
			body, err = a.body()
		}
		code := http.StatusOK
		if err != nil {
			w.Header().Del("ETag")
			if code, body = s.explain(r, err); body == nil {
				return // the browser went away
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(body) // a browser that went away is no error
	})
}

// explain makes the page of an error.
func (s *Server) explain(r *http.Request, err error) (int, []byte) {
	if r.Context().Err() != nil {
		return 0, nil
	}
	code, title := http.StatusInternalServerError, "The page could not be made"
	switch fault.KindOf(err) {
	case fault.NotFound:
		code, title = http.StatusNotFound, "Not found"
	case fault.Invalid:
		code, title = http.StatusBadRequest, "The address is wrong"
	case fault.Busy:
		code, title = http.StatusServiceUnavailable, "The store does not answer"
	default:
	}
	text := err.Error()
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Err != nil {
		text = e.Err.Error()
	}
	p := struct {
		base
		Message, Hint string
	}{s.base(title, "", ""), text, fault.HintOf(err)}
	p.Refresh = 0
	body, rerr := render("error", p)
	if rerr != nil {
		return http.StatusInternalServerError, []byte("the page of an error could not be made\n")
	}
	return code, body
}

func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fault.New(fault.Internal, "live.render", "%w", err)
	}
	return plain(b.String()), nil
}

// plain spells out what a browser would hide or act on in the texts of a run, wherever they got into the page.
func plain(page string) []byte { return []byte(transcript.Visible(page)) }

// base is what every page has.
type base struct {
	Title   string
	Nav     []navLink
	Refresh int // 0: the page is not refreshed
	Stamp   string
}

type navLink struct {
	Href, Text string
	Current    bool
}

// base starts a page; run is empty for pages about all runs.
func (s *Server) base(title, run, current string) base {
	b := base{Title: title, Refresh: s.o.Refresh}
	add := func(href, text string) { b.Nav = append(b.Nav, navLink{href, text, text == current}) }
	add("/", "Runs")
	if run != "" {
		at := "/runs/" + run + "/"
		add(at, "Report")
		add(at+"trajectories", "Trajectories")
		add(at+"ledger", "Ledger")
		add(at+"failures", "Failures")
		add("/compare?a="+run, "Compare")
	} else {
		add("/compare", "Compare")
	}
	return b
}

// lineageOf returns what is kept of a lineage, locked, with a view of this moment. The caller unlocks it.
func (s *Server) lineageOf(ctx context.Context, l record.Layout) (*lineage, error) {
	s.mu.Lock()
	x := s.runs[l]
	if x == nil {
		x = &lineage{}
		s.runs[l] = x
	}
	s.mu.Unlock()
	x.mu.Lock()
	v, err := look(ctx, s.c, l)
	if err != nil {
		x.mu.Unlock()
		return nil, err
	}
	if x.view != nil && x.view.began != v.began { // a new lineage, or a run that was removed and begun again
		s.c.forget("runs/" + l.Run + "/")
		x.index, x.status = nil, nil
	}
	if x.index == nil {
		x.index = newIndex(s.c, l)
	}
	x.view = v
	return x, nil
}

// requested reads the lineage of a request, locked.
func (s *Server) requested(r *http.Request) (record.Layout, *lineage, error) {
	l, err := layoutOf(r.Context(), s.c, r.PathValue("run"), r.URL.Query().Get("lineage"))
	if err != nil {
		return l, nil, err
	}
	x, err := s.lineageOf(r.Context(), l)
	return l, x, err
}

// statusLocked returns the status of a lineage, made anew only if the lineage has changed.
func (s *Server) statusLocked(ctx context.Context, l record.Layout, x *lineage) (*Status, error) {
	if x.status != nil && x.status.stamp == x.view.stamp {
		return x.status, nil
	}
	st, err := statusOf(ctx, s.c, l, x.view)
	if err == nil {
		x.status = st
	}
	return st, err
}

// tag is an entity tag: of the records, the address and the build.
func (s *Server) tag(r *http.Request, stamps ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append(stamps, r.URL.RequestURI(), s.o.Version, built), "\n")))
	return hex.EncodeToString(sum[:])[:24]
}

// Listen opens an address. Errors: Invalid (no such address, or it is taken).
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "live.Listen", "the pages cannot be served at %s: %w", address, err).
			WithHint("choose another address, as 127.0.0.1:0 for any free port")
	}
	return ln, nil
}

// IsLoopback reports whether nobody but this machine reaches what ln listens on.
func IsLoopback(ln net.Listener) bool {
	a, ok := ln.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Serve answers requests until ctx ends. Errors: Lost.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	err := h.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fault.New(fault.Lost, "live.Serve", "%w", err)
}
