package devserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// Attribute is a custom search attribute: its name and its type in the words of the temporal command line.
type Attribute struct{ Name, Type string }

// Options say how to run the server. Start fills in the defaults.
type Options struct {
	Binary  Binary
	DBFile  string // SQLite file; its folder is locked and holds the log
	IP      string // address to listen on; default 127.0.0.1
	Port    int    // gRPC; default 7233; -1 chooses a free one
	UIPort  int    // Web UI; default 8233; -1 chooses a free one
	LogFile string // default: the name of DBFile with the ending .log
	// Attributes are created in the namespace default if they are missing.
	Attributes []Attribute
	// Retention of closed workflows; default 30 days.
	Retention time.Duration
	// ReadyTimeout bounds the first start and every restart; default 90 s, which a loaded laptop needs.
	ReadyTimeout time.Duration
	// OnEvent is told of crashes, restarts and troubles, one after the other; may be nil.
	OnEvent func(Event)
	// OnWait is told what a start waits for when it takes more than a second; may be nil.
	OnWait func(what string)
}

// Event is something that happened to a running server.
type Event struct {
	Restarts int   // restarts so far
	Err      error // why it went down; nil when it is ready again
	// Trouble, if set, says why a server that runs cannot use its database; nothing else happened. Each is told once a start.
	Trouble string
}

// Server is a running development server.
type Server struct {
	options Options
	lock    *Lock
	stop    context.CancelFunc
	done    chan struct{}
	err     error // set before done is closed

	mu       sync.Mutex
	pid      int
	restarts int
}

// dynamic is the server's dynamic configuration: pause of workflows by the server, new search attributes
// usable at once.
var dynamic = []string{
	"frontend.WorkflowPauseEnabled=true",
	"system.forceSearchAttributesCacheRefreshOnRead=true",
}

// DynamicConfig returns the dynamic configuration of the server, each "key=value".
func DynamicConfig() []string { return slices.Clone(dynamic) }

// Start runs the server until ctx ends or Stop is called, restarting it when it dies, and returns when it answers. For
// what a process that was killed still holds, the data directory and the ports, it waits up to 10 s each.
//
// Errors: Invalid for a port or a data directory that is in use and for a database of another server version;
// Lost, with the end of its log, for a server that does not come up. Effects: a child process and two goroutines,
// all gone after Stop or soon after the end of ctx.
func Start(ctx context.Context, o Options) (*Server, error) {
	const op = "devserver.Start"
	if err := o.complete(); err != nil {
		return nil, err
	}
	lock, err := LockDir(ctx, filepath.Dir(o.DBFile), func(holder string) {
		o.OnWait(fmt.Sprintf("process %s, which is ending, to give the data directory free", holder))
	})
	if err != nil {
		return nil, err
	}
	if err := o.waitPorts(ctx, lock.abandoned); err != nil {
		lock.Unlock()
		return nil, err
	}
	if err := o.checkVersion(); err != nil {
		lock.Unlock()
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	s := &Server{options: o, lock: lock, stop: stop, done: make(chan struct{})}
	first := make(chan error, 1)
	go s.supervise(run, first)
	if err := <-first; err != nil {
		_ = s.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.New(fault.Lost, op, "%w", err).WithHint("the server's log is %s; if it says that the database is damaged, restore %s from a copy of its folder", o.LogFile, o.DBFile)
	}
	return s, nil
}

func (o *Options) complete() error {
	const op = "devserver.Start"
	if o.Binary.Path == "" || o.DBFile == "" {
		return fault.New(fault.Invalid, op, "the binary and the database file must be given")
	}
	if o.OnWait == nil {
		o.OnWait = func(string) {}
	}
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	if err := o.choosePorts(); err != nil {
		return err
	}
	if o.LogFile == "" {
		o.LogFile = strings.TrimSuffix(o.DBFile, filepath.Ext(o.DBFile)) + ".log"
	}
	if o.Retention == 0 {
		o.Retention = 30 * 24 * time.Hour
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = 90 * time.Second
	}
	return nil
}

// choosePorts fills in the ports.
func (o *Options) choosePorts() error {
	const op = "devserver.Start"
	for _, p := range []struct {
		port     *int
		standard int
	}{{&o.Port, 7233}, {&o.UIPort, 8233}} {
		switch *p.port {
		case 0:
			*p.port = p.standard
		case -1:
			free, err := freePort(o.IP)
			if err != nil {
				return fault.New(fault.Invalid, op, "%w", err)
			}
			*p.port = free
		}
	}
	return CheckPorts(o.Port, o.UIPort)
}

// CheckPorts wants two different TCP ports for the server and its Web UI. Errors: Invalid, naming the flag.
func CheckPorts(port, uiPort int) error {
	const op = "devserver.Start"
	for _, p := range []struct {
		flag string
		port int
	}{{"--port", port}, {"--ui-port", uiPort}} {
		if p.port < 1 || p.port > 65535 {
			return fault.New(fault.Invalid, op, "%s %d is no port: want a number from 1 to 65535", p.flag, p.port).
				WithHint("choose a free port with %s, for example one above 1024", p.flag)
		}
	}
	if port == uiPort {
		return fault.New(fault.Invalid, op, "--port and --ui-port are both %d: the server and the Web UI need a port each", port).
			WithHint("choose another port with --ui-port")
	}
	return nil
}

// Address returns host:port of the gRPC front end.
func (s *Server) Address() string {
	return net.JoinHostPort(s.options.IP, strconv.Itoa(s.options.Port))
}

// UI returns the address of the Web UI.
func (s *Server) UI() string {
	return "http://" + net.JoinHostPort(s.options.IP, strconv.Itoa(s.options.UIPort))
}

// PID returns the process id of the running server, 0 while it is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Restarts returns how often the server was started again.
func (s *Server) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// Done is closed when the server has stopped for good.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends the server in order (killed after 10 s) and gives the data directory free. It may be called twice.
// It returns why the server was already down for good, if it was.
func (s *Server) Stop() error {
	s.stop()
	<-s.done
	return s.err
}

// stableAfter is how long a server must have lived for its next crash to be restarted without delay again.
const stableAfter = 30 * time.Second

// supervise starts the server again and again until ctx ends. The result of the first start goes to first; after a
// failed first start it gives up.
func (s *Server) supervise(ctx context.Context, first chan<- error) {
	defer close(s.done)
	defer s.lock.Unlock()
	delay := 100 * time.Millisecond
	for attempt := 0; ; attempt++ {
		started := time.Now()
		exited, err := s.launch()
		if err == nil {
			err = s.awaitReady(ctx, exited)
		}
		if attempt == 0 {
			first <- err
			if err != nil {
				s.end(exited)
				return
			}
		} else if err == nil {
			s.tell(nil)
		}
		if err == nil {
			if err = s.attend(ctx, exited); err != nil {
				exited = nil
			}
		}
		if ctx.Err() != nil {
			s.end(exited)
			return
		}
		s.end(exited)
		s.tell(err)
		if time.Since(started) > stableAfter {
			delay = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(2*delay, 5*time.Second)
		s.mu.Lock()
		s.restarts++
		s.mu.Unlock()
	}
}

// attend waits until ctx ends (nil) or the server has ended by itself, and tells its troubles meanwhile.
func (s *Server) attend(ctx context.Context, exited chan error) error {
	wctx, stop := context.WithCancel(ctx)
	look, watched := sinceNow(s.options.LogFile), make(chan struct{})
	go func() {
		defer close(watched)
		look.watch(wctx, func(text string) {
			if s.options.OnEvent != nil {
				s.options.OnEvent(Event{Restarts: s.Restarts(), Trouble: text})
			}
		})
	}()
	defer func() { stop(); <-watched }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-exited:
		return fmt.Errorf("the server ended: %s", describeExit(err))
	}
}

func (s *Server) tell(err error) {
	if s.options.OnEvent != nil {
		s.options.OnEvent(Event{Restarts: s.Restarts(), Err: err})
	}
}

// launch starts the process. The channel gets its exit.
func (s *Server) launch() (chan error, error) {
	o := s.options
	log, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	args := []string{
		"server", "start-dev", "--ip", o.IP, "--port", strconv.Itoa(o.Port), "--ui-port", strconv.Itoa(o.UIPort),
		"--db-filename", o.DBFile, "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full",
		"--log-level", "warn", "--log-format", "json",
	}
	for _, v := range dynamic {
		args = append(args, "--dynamic-config-value", v)
	}
	for _, a := range o.Attributes {
		args = append(args, "--search-attribute", a.Name+"="+a.Type)
	}
	cmd := exec.Command(o.Binary.Path, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, processAttributes()
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that forked ends, so this thread waits as long as
		// the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		s.setPID(cmd.Process.Pid)
		started <- nil
		err := cmd.Wait()
		s.setPID(0)
		exited <- err
	}()
	return exited, <-started
}

func (s *Server) setPID(pid int) {
	s.mu.Lock()
	s.pid = pid
	s.mu.Unlock()
}

// end stops a process that may still run and waits for it.
func (s *Server) end(exited chan error) {
	pid := s.PID()
	if exited == nil || pid == 0 {
		return
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	_ = process.Signal(os.Interrupt)
	select {
	case <-exited:
	case <-time.After(10 * time.Second):
		_ = process.Kill()
		<-exited
	}
}

func describeExit(err error) string {
	if err == nil {
		return "exit code 0"
	}
	return err.Error()
}
