package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/steadyrl/steady/internal/fault"
)

// Server answers /metrics, /healthz and /readyz.
type Server struct {
	http *http.Server
	addr string
	done chan struct{}
}

// readyTimeout bounds the question whether the process is ready.
const readyTimeout = 3 * time.Second

// Serve listens on addr (host:port; an empty host is every interface, port 0 a free one) until Close.
//
// /metrics is s in the text format of Prometheus. /healthz is 200 as long as the process answers. /readyz is 200 if ready returns
// nil, else 503 with the error; ready has three seconds. Errors: Invalid (the address cannot be listened on).
func Serve(addr string, s *Set, ready func(context.Context) error) (*Server, error) {
	const op = "metrics.Serve"
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "--metrics %s: %w", addr, err).
			WithHint("give a free address as host:port, for example 127.0.0.1:9464, or :9464 for every interface")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: s.Registry()}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			say(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		say(w, http.StatusOK, "ready")
	})
	srv := &Server{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute},
		addr: l.Addr().String(), done: make(chan struct{}),
	}
	go func() {
		defer close(srv.done)
		_ = srv.http.Serve(l) // ends with Close; a broken listener shows as a scrape that fails
	}()
	return srv, nil
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// Addr is the address that is listened on.
func (s *Server) Addr() string { return s.addr }

// Close ends the server; requests in progress have a second.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.done
	return err
}
