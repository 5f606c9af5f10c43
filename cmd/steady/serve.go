package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/live"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/workers"
)

// processFlags say what a worker process may use of the machine.
type processFlags struct {
	Threads int    `help:"Threads of the engine; 0 for all cores. Results do not depend on it."`
	Python  string `help:"Python interpreter of tools and judge; default: a 3.12 if found, else any python3 from 3.9 on." placeholder:"PATH"`
	Slots   int    `help:"Python programs that run at once; 0 for the number of cores."`
	telemetryFlags
}

// engineFlags choose the engine of a worker process.
type engineFlags struct {
	Engine       string `help:"Engine: cpu, ref, or cuda (in steady-cuda)." default:"cpu" enum:"cpu,ref,cuda"`
	MaxSequences int    `help:"Sequences that one rollout engine generates at once." default:"64"`
	Device       string `help:"GPU of the engine cuda: its number or UUID; default: the first." placeholder:"GPU"`
	CacheTokens  int    `help:"Tokens whose keys and values a sampler on a GPU keeps; 0 for what memory allows."`
	processFlags
}

// workerOptions fills the options that all commands share.
func (f engineFlags) workerOptions(c client.Client, namespace string, store artifact.Store, host string, roles []workers.Role, tell *telemetry) (workers.Options, error) {
	helper, err := os.Executable()
	if err != nil {
		return workers.Options{}, fault.New(fault.Internal, "steady", "find this program: %w", err)
	}
	o := workers.Options{
		Client: c, Namespace: namespace, Store: store, Roles: roles, Host: host, Backend: f.Engine, Threads: f.Threads,
		GPU:          workers.GPU{Device: f.Device, CacheTokens: f.CacheTokens, KernelDir: kernelDir()},
		MaxSequences: f.MaxSequences, Python: f.Python, Helper: helper, Slots: f.Slots, Version: version(),
	}
	tell.workers(&o)
	return o, nil
}

// kernelDir keeps compiled kernels in the user's cache; without one they are compiled at every start.
func kernelDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "steady", "kernels")
}

func hostName() string {
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "localhost"
	}
	return h
}

type workerCmd struct {
	engineFlags
	Roles string `help:"Comma-separated: control, data, rollout, judge, trainer, standby; or all, which is without standby." default:"all"`
	Data  string `help:"Directory of the artifact store, shared by all workers of a run; with --store, of local copies." default:".steady" type:"path"`
	storeFlags
	Name string `help:"Name of this host; stable over restarts and unique among trainers. Default: the host name." placeholder:"NAME"`

	WaitServer time.Duration `help:"How long to wait at the start for a Temporal server that does not answer; 0 does not wait." default:"5m"`
	LogFormat  string        `help:"Log lines as json or text; auto is text on a terminal, else json." default:"auto" enum:"auto,text,json" env:"STEADY_LOG_FORMAT"`
}

// Run serves until interrupted. The connection follows the standard Temporal environment (TEMPORAL_ADDRESS,
// TEMPORAL_NAMESPACE, TEMPORAL_TLS_*, TEMPORAL_API_KEY, or a profile).
func (w *workerCmd) Run(ctx context.Context, s *streams) error {
	roles, err := workers.ParseRoles(w.Roles)
	if w.WaitServer < 0 {
		err = errors.Join(err, fault.New(fault.Invalid, "worker", "--wait-server %s is negative", w.WaitServer).WithHint("choose 0 or more, for example 10m"))
	}
	if err := errors.Join(err, w.engineFlags.check(ctx), w.storeFlags.check(), checkDir("--data", w.Data)); err != nil {
		return err
	}
	log, closeLog, err := obs.NewLogger(obs.Options{Level: w.LogLevel, Console: s.err, ConsoleFormat: consoleFormat(w.LogFormat, s.err)})
	if err != nil {
		return err
	}
	defer closeLog() //nolint:errcheck // the console needs no flush
	store, err := w.make(ctx, w.Data)
	if err != nil {
		return err
	}
	opts, err := environment(time.Now())
	if err != nil {
		return err
	}
	name := w.Name
	if name == "" {
		name = hostName()
	}
	tell, err := w.start(ctx, namespaceOf(opts), name, log)
	defer tell.close()
	if err != nil {
		return err
	}
	tell.client(&opts)
	c, err := newConnector(tell.log).connect(ctx, opts, w.WaitServer)
	if err != nil {
		return err
	}
	defer c.Close()
	o, err := w.workerOptions(c, namespaceOf(opts), store, name, roles, tell)
	if err != nil {
		return err
	}
	set, err := workers.Start(ctx, o)
	if err != nil {
		return err
	}
	tell.ready.Store(set)
	tell.log.Info("serving", zap.String("roles", w.Roles), zap.String("store", store.Where("")))
	select {
	case <-ctx.Done():
		tell.ready.Store(nil)
		return set.Stop()
	case err := <-set.Lost():
		tell.ready.Store(nil)
		return errors.Join(err, set.Stop())
	}
}

// serverFlags say where the development server and the data live.
type serverFlags struct {
	Data string `help:"Directory of the artifact store, the server's database and logs." default:".steady" type:"path"`
	storeFlags
	Port     int    `help:"Port of the Temporal server." default:"7233"`
	UIPort   int    `help:"Port of the Web UI." default:"8233"`
	Temporal string `help:"The temporal program; default: beside steady, in .tools, or on PATH." placeholder:"PATH"`
}

// liveFlags say where the live pages are served.
type liveFlags struct {
	LivePort *int `help:"Port of the live pages of the runs, on this machine only; 0 for any free one, -1 for none. Default: 8234, or a free one if that is taken." placeholder:"PORT"`
}

// defaultLivePort is that of the live pages, if it is free.
const defaultLivePort = 8234

func (f liveFlags) check() error {
	if f.LivePort == nil || *f.LivePort == -1 {
		return nil
	}
	return checkWithin("--live-port", *f.LivePort, 0, 65535)
}

// serveLive serves the pages of a store until ctx ends. It returns their address, empty for none. A port that nobody asked for and
// that is taken is replaced by a free one. Errors: Invalid (the port is taken).
func (f liveFlags) serveLive(ctx context.Context, store artifact.Store, event func(format string, args ...any)) (string, error) {
	address := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	var ln net.Listener
	var err error
	switch {
	case f.LivePort == nil:
		if ln, err = live.Listen(ctx, address(defaultLivePort)); err != nil {
			ln, err = live.Listen(ctx, address(0))
		}
	case *f.LivePort == -1:
		return "", nil
	default:
		ln, err = live.Listen(ctx, address(*f.LivePort))
	}
	if err != nil {
		return "", err
	}
	srv := newPages(store, ln)
	go func() {
		defer srv.Close()
		if err := srv.Serve(ctx, ln); err != nil {
			event("the live pages are gone: %v", err)
		}
	}()
	return "http://" + ln.Addr().String() + "/", nil
}

// local is a development server with a client, a store and workers.
type local struct {
	server *devserver.Server
	client client.Client
	store  artifact.Store
	set    *workers.Set
	log    *zap.Logger
	runs   int // at once
	tell   *telemetry
	close  []func()
}

// startLocal starts the development server and all roles in this process.
func startLocal(ctx context.Context, f serverFlags, e engineFlags, console io.Writer, event func(format string, args ...any)) (*local, error) {
	return startLocalFor(ctx, f, e, 1, console, event)
}

// startLocalFor is startLocal for several runs at once.
func startLocalFor(ctx context.Context, f serverFlags, e engineFlags, runs int, console io.Writer, event func(format string, args ...any)) (*local, error) {
	l := &local{runs: runs}
	if err := l.start(ctx, f, e, console, event); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

func (l *local) start(ctx context.Context, f serverFlags, e engineFlags, console io.Writer, event func(string, ...any)) error {
	binary, err := devserver.Find(ctx, f.Temporal)
	if err != nil {
		return err
	}
	log, closeLog, err := obs.NewLogger(obs.Options{
		Level: e.LogLevel, File: filepath.Join(f.Data, "logs", "steady.log"), Console: console, ConsoleLevel: "warn",
		OnLost: func(err error) { event("the log cannot be written, lines are lost: %v", err) },
	})
	if err != nil {
		return err
	}
	l.log = log
	l.close = append(l.close, func() { _ = closeLog() })
	if l.tell, err = e.start(ctx, client.DefaultNamespace, hostName(), log); err != nil {
		return err
	}
	l.log = l.tell.log
	if l.store, err = f.make(ctx, f.Data); err != nil {
		return err
	}
	var attrs []devserver.Attribute
	for _, a := range contract.SearchAttributes() {
		attrs = append(attrs, devserver.Attribute{Name: a.Name, Type: a.Type.String()})
	}
	// The server outlives ctx, so that workers can drain before it stops.
	sctx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	l.close = append(l.close, stopServer)
	l.server, err = devserver.Start(sctx, devserver.Options{
		Binary: binary, DBFile: filepath.Join(f.Data, "temporal", "temporal.db"), Port: f.Port, UIPort: f.UIPort,
		Attributes: attrs, OnWait: func(what string) { event("waiting for %s", what) },
		OnEvent: func(ev devserver.Event) {
			switch {
			case ev.Trouble != "":
				event("the Temporal server cannot use its database %s: %s; free space or restore the file from a copy, or the run waits for ever",
					filepath.Join(f.Data, "temporal", "temporal.db"), ev.Trouble)
			case ev.Err != nil:
				event("the Temporal server went down (%v), restart %d", ev.Err, ev.Restarts)
			default:
				event("the Temporal server answers again")
			}
		},
	})
	if err != nil {
		return err
	}
	opts := client.Options{HostPort: l.server.Address()}
	l.tell.client(&opts)
	if l.client, err = newConnector(l.log).connect(ctx, opts, 0); err != nil {
		return err
	}
	l.close = append(l.close, l.client.Close)
	o, err := e.workerOptions(l.client, client.DefaultNamespace, l.store, hostName(), workers.AllRoles(), l.tell)
	if err != nil {
		return err
	}
	o.Runs = l.runs
	if l.set, err = workers.Start(ctx, o); err == nil {
		l.tell.ready.Store(l.set)
	}
	return err
}

// stop drains the workers, then stops the server.
func (l *local) stop() {
	if l.tell != nil {
		l.tell.ready.Store(nil)
	}
	if l.set != nil {
		if err := l.set.Stop(); err != nil {
			l.log.Warn("workers did not stop cleanly", zap.Error(err))
		}
	}
	if l.client != nil {
		l.client.Close()
	}
	if l.server != nil {
		l.server.Stop()
	}
	l.tell.close()
	for i := len(l.close) - 1; i >= 0; i-- {
		l.close[i]()
	}
}

type devCmd struct {
	serverFlags
	engineFlags
	liveFlags
}

// Run serves until interrupted.
func (d *devCmd) Run(ctx context.Context, s *streams) error {
	if err := errors.Join(d.serverFlags.check(ctx), d.engineFlags.check(ctx), d.liveFlags.check()); err != nil {
		return err
	}
	event := func(format string, args ...any) { fmt.Fprintf(s.err, format+"\n", args...) }
	l, err := startLocal(ctx, d.serverFlags, d.engineFlags, s.err, event)
	if err != nil {
		return err
	}
	defer l.stop()
	pages, err := d.serveLive(ctx, l.store, event)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, `Temporal server  %s
Web UI           %s
pages of runs    %s
artifact store   %s

start a run from another terminal:
  steady config print --recipe demo --json > run.json
  temporal workflow start --address %s --type TrainRun --task-queue steady --workflow-id r1 --input-file run.json
`, l.server.Address(), l.server.UI(), cmp.Or(pages, "none"), l.store.Where(""), l.server.Address())
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.set.Lost():
		return err
	case <-l.server.Done():
		return fault.New(fault.Lost, "dev", "the Temporal server ended and could not be restarted").WithHint("read the log in %s", filepath.Join(d.Data, "temporal"))
	}
}
