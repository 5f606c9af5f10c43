package devserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/steadyrl/steady/internal/fault"
)

// frontend is the service whose health is asked for.
const frontend = "temporal.api.workflowservice.v1.WorkflowService"

// awaitReady returns when the front end serves and the namespace is set up, or with an error when the process exits,
// the time is over or ctx ends.
func (s *Server) awaitReady(ctx context.Context, exited chan error) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReadyTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	health := grpc_health_v1.NewHealthClient(conn)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: frontend})
		if err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			if err = s.setUp(ctx); err == nil {
				return nil
			}
		}
		conn.ResetConnectBackoff()
		select {
		case exit := <-exited:
			exited <- exit // for the caller, who waits for the process
			return fmt.Errorf("the server ended while starting: %s: %s", describeExit(exit), s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer at %s after %s: %w", s.Address(), s.options.ReadyTimeout, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// setUp raises the retention of the default namespace and creates the search attributes that are missing: the
// flags of the server apply only to a new database.
func (s *Server) setUp(ctx context.Context) error {
	out, err := s.admin(ctx, "operator", "namespace", "describe", "-n", "default", "-o", "json")
	if err != nil {
		return err
	}
	var namespace struct {
		Config struct {
			Retention string `json:"workflowExecutionRetentionTtl"`
		} `json:"config"`
	}
	if err := json.Unmarshal(out, &namespace); err != nil {
		return fmt.Errorf("namespace describe: %w", err)
	}
	if want := fmt.Sprintf("%ds", int(s.options.Retention.Seconds())); namespace.Config.Retention != want {
		if _, err := s.admin(ctx, "operator", "namespace", "update", "-n", "default", "--retention", want); err != nil {
			return err
		}
	}
	out, err = s.admin(ctx, "operator", "search-attribute", "list", "-n", "default", "-o", "json")
	if err != nil {
		return err
	}
	var present struct {
		Custom map[string]string `json:"customAttributes"`
	}
	if err := json.Unmarshal(out, &present); err != nil {
		return fmt.Errorf("search-attribute list: %w", err)
	}
	for _, a := range s.options.Attributes {
		if _, ok := present.Custom[a.Name]; ok {
			continue
		}
		if _, err := s.admin(ctx, "operator", "search-attribute", "create", "-n", "default", "--name", a.Name, "--type", a.Type); err != nil {
			return err
		}
	}
	return nil
}

// admin runs a command of the temporal command line against this server.
func (s *Server) admin(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.options.Binary.Path, append(args, "--address", s.Address(), "--disable-config-file", "--disable-config-env")...)
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil { // killed, as nobody waits for it
		return nil, ctx.Err()
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, lastLine(exit.Stderr))
		}
		return nil, fmt.Errorf("temporal %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// logTail returns the last lines of the log, shortened. If they are the trace of a panic, it is the line before the trace, which says why.
func (s *Server) logTail() string {
	data, err := os.ReadFile(s.options.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data[max(0, len(data)-100_000):])), "\n")
	for i := len(lines) - 1; i >= 0 && !strings.HasPrefix(lines[i], "{"); i-- { // what it logs begins so
		if strings.HasPrefix(lines[i], "panic: ") || strings.HasPrefix(lines[i], "fatal error: ") {
			return lines[i]
		}
	}
	last := strings.Join(lines[max(0, len(lines)-3):], " / ")
	return last[max(0, len(last)-2000):]
}

// waitPorts waits until both ports are free: 10 s if the last user of the data directory was killed, since the kernel
// then needs a moment to end its server, else 3 s.
func (o *Options) waitPorts(ctx context.Context, killed bool) error {
	limit := 3 * time.Second
	if killed {
		limit = 10 * time.Second
	}
	return errors.Join(o.waitPort(ctx, o.Port, "--port", limit), o.waitPort(ctx, o.UIPort, "--ui-port", limit))
}

func (o *Options) waitPort(ctx context.Context, port int, flag string, limit time.Duration) error {
	address := net.JoinHostPort(o.IP, strconv.Itoa(port))
	began, told := time.Now(), false
	for {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l.Close()
		}
		waited := time.Since(began)
		// Only a port in use may become free; one that is not allowed stays so.
		if waited > limit || !errors.Is(err, syscall.EADDRINUSE) {
			return fault.New(fault.Invalid, "devserver.Start", "port %d is in use or not allowed: %w", port, err).
				WithHint("stop the program that uses port %d (perhaps another Temporal server), or choose another with %s", port, flag)
		}
		if !told && waited > time.Second {
			told = true
			o.OnWait(fmt.Sprintf("port %d to be free", port))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort(ip string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// checkVersion refuses a database that a server of another minor version has written: there is no migration of a
// development database. The version is kept in a file beside it.
func (o *Options) checkVersion() error {
	const op = "devserver.Start"
	name := o.DBFile + ".version"
	if _, err := os.Stat(o.DBFile); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(name, []byte(o.Binary.Server+"\n"), 0o644); err != nil {
			return fault.New(fault.Exhausted, op, "%w", err)
		}
		return nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil // a database from elsewhere: the server itself will say what it thinks of it
	}
	wrote := strings.TrimSpace(string(data))
	if minor(wrote) != minor(o.Binary.Server) {
		return fault.New(fault.Invalid, op, "%s was written by Temporal server %s, %s holds %s", o.DBFile, wrote, o.Binary.Path, o.Binary.Server).
			WithHint("use a temporal binary with server %s (--temporal), or move %s* away: runs go on from the artifact store under a new id", wrote, o.DBFile)
	}
	return nil
}

func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
