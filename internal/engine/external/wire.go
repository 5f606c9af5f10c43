package external

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// dialect is how a kind of server is asked and how it answers. Errors of the parsers are Infrastructure or Lost.
type dialect interface {
	// models is the path that names what is served; named reports whether the answer names the model, the longest context (0: it does not
	// say) and what the weights are called.
	models() string
	named(data []byte, model string) (ok bool, context int, weights string, err error)
	generate(model string, r engine.Request, width int) (path string, body any)
	// chunk reads one piece of a stream and adds to a what it says.
	chunk(data []byte, a *answer) ([]token, error)
	score(model string, tokens []int32) (path string, body any)
	scores(data []byte, tokens []int32) ([]float32, error)
}

// token is a token as a server sends it.
type token struct {
	id  int32
	lp  float64
	top []entry
}

// entry is an entry of a record.
type entry struct {
	id int32
	lp float64
}

// answer is what a stream said so far besides its tokens.
type answer struct {
	model     string
	weights   string
	promptIDs []int32 // nil: not said
	prompt    int     // tokens of the prompt, -1: not said
	finish    string
	stopped   bool // the newest token is a stop token
	seen      int  // tokens so far
}

// maxLine bounds a piece of a stream, maxWhole an answer in one piece, maxError what is read of an error.
const (
	maxLine  = 8 << 20
	maxWhole = 256 << 20
	maxError = 4 << 10
)

// call sends a request whose answer is given up when s is closed, or when nothing came for the idle time; read stops and resets the timer
// of that. An end of ctx is returned as it is.
func (s *Sampler) call(parent context.Context, method, path string, body any, read func(r io.Reader, idle *time.Timer) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	lost := fault.New(fault.Lost, "external", "the server sent nothing for %v", s.o.Idle).WithHint("see whether it hangs; what it was asked for will be asked again")
	idle := time.AfterFunc(s.o.Idle, func() { cancel(lost) })
	defer idle.Stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-s.closed:
			cancel(fault.New(fault.Lost, "external", "the engine is closed"))
		case <-done:
		}
	}()
	select {
	case <-s.closed:
		return fault.New(fault.Lost, "external", "the engine is closed")
	default:
	}
	err := s.send(ctx, method, path, body, func(r io.Reader) error { return read(r, idle) })
	_, own := errors.AsType[stopped](err)
	switch {
	case err == nil, own:
		return err
	case parent.Err() != nil:
		return parent.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (s *Sampler) send(ctx context.Context, method, path string, body any, read func(io.Reader) error) error {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fault.New(fault.Internal, "external", "%w", err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.o.URL+path, payload)
	if err != nil {
		return fault.New(fault.Invalid, "external", "%w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.o.Key)
	}
	res, err := s.o.Client.Do(req)
	if err != nil {
		return fault.New(fault.Lost, "external", "the server cannot be reached: %w", err).WithHint("start it, or correct its URL")
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refused(path, res)
	}
	return read(res.Body)
}

// refused is the error for an answer with another status than 200.
func refused(path string, res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxError)) // what can be read
	kind, hint := fault.Invalid, ""
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		hint = "give the server's key"
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		hint = "the server must have this path: check its URL and the dialect"
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		kind = fault.Busy
	case code == http.StatusRequestTimeout || code >= 500:
		kind = fault.Lost
	case code < 400:
		hint = "redirects are not followed: give the final URL"
	}
	e := fault.New(kind, "external", "%s: status %d: %s", path, res.StatusCode, strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " "))
	if hint != "" {
		return e.WithHint("%s", hint)
	}
	return e
}

// stream sends a request and hands every piece of the answer, a stream of server-sent events, to each.
func (s *Sampler) stream(ctx context.Context, path string, body any, each func(data []byte) error) error {
	return s.call(ctx, http.MethodPost, path, body, func(r io.Reader, idle *time.Timer) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		pieces := 0
		for lines.Scan() {
			idle.Reset(s.o.Idle)
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
			if !ok {
				continue // blank, a comment, or another field
			}
			if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
				return nil
			}
			pieces++
			idle.Stop() // what the receiver does takes its own time
			if err := each(data); err != nil {
				return err
			}
			idle.Reset(s.o.Idle)
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			return broken("a piece of more than %d bytes", maxLine)
		}
		if pieces == 0 {
			return broken("it is no stream of events")
		}
		return fault.New(fault.Lost, "external", "the server's answer broke off: %w", cmpErr(lines.Err(), io.ErrUnexpectedEOF))
	})
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// whole sends a request and returns the answer, which comes in one piece.
func (s *Sampler) whole(ctx context.Context, path string, body any) (data []byte, err error) {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	err = s.call(ctx, method, path, body, func(r io.Reader, idle *time.Timer) error {
		var rerr error
		data, rerr = io.ReadAll(io.LimitReader(aliveReader{r, func() { idle.Reset(s.o.Idle) }}, maxWhole))
		if rerr != nil {
			return fault.New(fault.Lost, "external", "the server's answer broke off: %w", rerr)
		}
		return nil
	})
	return data, err
}

// aliveReader says with every read that something came.
type aliveReader struct {
	io.Reader
	alive func()
}

func (a aliveReader) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.alive()
	}
	return n, err
}

// decode reads a piece of JSON, or the error that a server sends in its place.
func decode(data []byte, v any) error {
	var e struct {
		Error  json.RawMessage `json:"error"`
		Object string          `json:"object"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return broken("it is not JSON: %w", err)
	}
	if len(e.Error) > 0 && string(e.Error) != "null" || e.Object == "error" {
		return fault.New(fault.Lost, "external", "the server reports an error: %.300s", data)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return broken("it has another form: %w", err)
	}
	return nil
}
