package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// bench is a folder with what the commands of the tests name.
type bench struct {
	t   *testing.T
	dir string
}

func newBench(t *testing.T) bench {
	t.Helper()
	b := bench{t, t.TempDir()}
	// A program that answers as temporal does when it is asked for its version, and leaves a file when it is to do more.
	testutil.WriteScript(t, b.dir, "temporal", `[ "$*" = --version ] && echo "temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)" && exit 0
echo "$@" >> "`+b.path("started")+`"; exit 1`)
	testutil.WriteScript(t, b.dir, "notpython", "exit 3")
	b.write("file", "text")
	if err := syscall.Mkfifo(b.path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) path(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

func (b bench) write(name, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o750); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// store makes a store with the run r, which has the lineages l0 and l1 and a configuration that nothing else has.
func (b bench) store(data string) {
	b.t.Helper()
	s, err := artifact.NewFiles(filepath.Join(data, "store"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, l := range []record.Layout{{Run: "r", Lineage: "l0"}, {Run: "r", Lineage: "l1"}} {
		if _, err := s.Put(b.t.Context(), l.ConfigFile(), []byte("{}")); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := artifact.PutJSON(b.t.Context(), s, record.Layout{Run: "r", Lineage: "l0"}.RunFile(), record.Run{Run: "r", Lineage: "l0"}); err != nil {
		b.t.Fatal(err)
	}
}

// steady runs a command; DIR in an argument is the folder of the bench.
func (b bench) steady(args ...string) (string, int) {
	b.t.Helper()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", b.dir)
	}
	var out, errOut bytes.Buffer
	code := run(args, &out, &errOut)
	return out.String() + errOut.String(), code
}

// TestCommands_checkTheirInputFirst runs every command with input that can never work. Each ends with status 2, says what was
// given and what to do, and starts no server.
func TestCommands_checkTheirInputFirst(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"demo --run=../x":                                     `--run "../x"`,
		"demo --run=":                                         `--run ""`,
		"demo --run=-x":                                       `--run "-x"`,
		"demo --port=7233 --ui-port=7233":                     "--port and --ui-port are both 7233",
		"demo --port=99999":                                   "--port 99999 is no port: want a number from 1 to 65535",
		"demo --ui-port=-1":                                   "--ui-port -1 is no port",
		"demo --port=0":                                       "--port 0 is no port",
		"demo --port=x":                                       "--port",
		"demo --port=7233.5":                                  "--port",
		"demo --data=DIR/file":                                "DIR/file",
		"demo --data=DIR/file/x":                              "not a directory",
		"demo --data=":                                        `--data ""`,
		"demo --report=DIR":                                   "is a directory",
		"demo --report=DIR/absent/r.html":                     "no such file or directory",
		"demo --report=DIR/file/r.html":                       "not a directory",
		"demo --report=":                                      `--report ""`,
		"demo --temporal=DIR/absent":                          "DIR/absent",
		"demo --temporal=DIR":                                 "DIR --version",
		"demo --temporal=DIR/file":                            "permission denied",
		"demo --python=DIR/absent":                            "DIR/absent",
		"demo --python=DIR/notpython":                         "DIR/notpython: does not run: exit status 3",
		"demo --threads=-1":                                   "--threads -1: want at least 0",
		"demo --slots=-1":                                     "--slots -1: want at least 0",
		"demo --engine=ref":                                   "unknown flag --engine",
		"demo --log-level=loud":                               "debug",
		"demo -f DIR/absent":                                  "DIR/absent",
		"demo -f DIR":                                         "is a directory",
		"demo --recipe=nope":                                  "want one of demo, sc-taco",
		"demo --recipe=sc-taco":                               "engine.trainer_ranks",
		"demo --set=run.steps=-1":                             "run.steps: must be at least 1, got -1",
		"demo --set=run.stepz=1":                              "unknown key",
		"demo --set=run.init_run=nope":                        `no run "nope"`,
		"demo --set=run.init_run=r":                           `run "r" has no checkpoint`,
		"demo --set=run.init_run=r --fresh --run=r":           `run "r" has no checkpoint`,
		"demo --set=run.init_run=r --set=run.init_lineage=l7": `no lineage "l7"`,
		"demo --set=run.init_run=a/b":                         "run.init_run: must be",
		"demo --run=r":                                        "the run r exists with another configuration",
		"demo --set=model.path=DIR/absent":                    "DIR/absent",
		"demo --set=data.shards=[DIR/absent]":                 "DIR/absent",
		"demo --set=data.exclude=DIR":                         "is a directory",
		"demo more":                                           "unexpected argument",
		"dev --port=1 --ui-port=1":                            "both 1",
		"dev --port=65536":                                    "--port 65536",
		"dev --data=DIR/file":                                 `--data "DIR/file" is a file, not a directory`,
		"dev --engine=cuda":                                   "make build-cuda",
		"pretrain --engine=cuda":                              "make build-cuda",
		"eval --engine=cuda --model=bundled --data=taco --set=DIR": "make build-cuda",
		"demo --threads=1000000000":                                "--threads 1000000000: want at least 0 and at most 4096",
		"demo --slots=1000000000":                                  "--slots 1000000000: want at least 0 and at most 4096",
		"demo --set=rollout.group_size=100000000":                  "rollout.group_size: must be at most 1024, got 100000000",
		"dev --max-sequences=1000000000":                           "--max-sequences 1000000000: want at least 1 and at most 65536",
		"pretrain --threads=1000000000":                            "--threads 1000000000: want at least 0 and at most 4096",
		"dev --max-sequences=0":                                    "--max-sequences 0: want at least 1",
		"dev --threads=-2":                                         "--threads -2",
		"dev --python=DIR/absent":                                  "DIR/absent",
		"worker --roles=":                                          "unknown role",
		"worker --roles=judge,judge":                               "given twice",
		"worker --roles=judge,cook":                                `unknown role "cook"`,
		"worker --threads=-1":                                      "--threads -1",
		"worker --data=DIR/file":                                   `--data "DIR/file" is a file, not a directory`,
		"doctor --port=99999":                                      "--port 99999",
		"report":                                                   "run",
		"report nope":                                              `no run "nope" in DIR/data/store; there is r`,
		"report r --out=DIR":                                       "is a directory",
		"report r --out=DIR/absent/r.html":                         "no such file or directory",
		"report r --out=":                                          `--out ""`,
		"report r --lineage=zz":                                    `run r has no lineage "zz"; there is l0, l1`,
		"report r --lineage=":                                      `--lineage ""`,
		"report ../r":                                              `"../r"`,
		"ledger nope":                                              `no run "nope"`,
		"ledger r --lineage=zz":                                    `run r has no lineage "zz"; there is l0, l1`,
		"ledger r --lineage=../l0":                                 `--lineage "../l0"`,
		"ledger r --data=DIR/absent":                               "no artifact store at DIR/absent/store",
		"ledger r --data=DIR/file":                                 "no artifact store at DIR/file/store",
		"verify-export":                                            "dir",
		"verify-export DIR/absent":                                 "there is no DIR/absent",
		"verify-export DIR/file":                                   "is a file, not a directory",
		"verify-export DIR":                                        "DIR has no certificate.json",
		"dataset":                                                  "decisions",
		"dataset funnel":                                           "dir",
		"report r --out=DIR/pipe":                                  "it is a pipe",
		"demo --report=DIR/pipe":                                   "it is a pipe",
		"pretrain --short=-1":                                      "--short -1: want at least 0",
		"pretrain --full=-1":                                       "--full -1: want at least 0",
		"pretrain --threads=-1":                                    "--threads -1: want at least 0",
		"pretrain --out=DIR/file":                                  `--out "DIR/file" is a file, not a directory`,
		"pretrain --out=DIR/file/below":                            "not a directory",
		"metrics export r --format=tensorboard --out=DIR/file":     `--out "DIR/file" is a file, not a directory`,
		"study report s --out=DIR/file":                            `--out "DIR/file" is a file, not a directory`,
		"eval --model=bundled --data=taco --set=DIR --out=DIR/file": `--out "DIR/file" is a file, not a directory`,
		"pretrain --out=":                                `--out ""`,
		"version more":                                   "unexpected argument",
		"nope":                                           "unexpected argument",
		"dataset funnel DIR/absent":                      "there is no DIR/absent",
		"dataset decisions DIR/file":                     "is a file, not a directory",
		"dataset check DIR":                              "DIR has no manifest.json",
		"config print -f DIR/absent":                     "DIR/absent: no such file",
		"config print --set=run.steps=-1":                "run.steps: must be at least 1, got -1",
		"config print --recipe=sc-taco --set=data.dev=0": "data.dev: must be at least 1, got 0",
		"config print --recipe=demo --set=rollout.prefill=9 --json": "rollout.prefill: must be smaller",
		"config validate":                  "model.path: must be given",
		"config validate --recipe=sc-taco": "engine.trainer_ranks",
		"config validate -f DIR":           "is a directory",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.store(b.path("data"))
			list := strings.Fields(args)
			name := list[0]
			takesData := slices.Contains([]string{"demo", "dev", "worker", "report", "ledger"}, name)
			if takesData && !strings.Contains(args, "--data") {
				list = append(list, "--data=DIR/data")
			}
			if (name == "demo" || name == "dev") && !strings.Contains(args, "--temporal") {
				list = append(list, "--temporal=DIR/temporal")
			}
			if name == "demo" && !strings.Contains(args, "--report") {
				list = append(list, "--report=DIR/report.html")
			}
			before := tree(t, b.dir)
			text, code := b.steady(list...)
			want := strings.ReplaceAll(want, "DIR", b.dir)
			if code != exitUsage || !strings.HasPrefix(text, "error: ") || !strings.Contains(text, want) || !strings.Contains(text, "try: ") && !strings.Contains(text, "want at least") || strings.Contains(text, "goroutine") {
				t.Errorf("status %d, want 2 and %q:\n%s", code, want, text)
			}
			if _, err := os.Stat(b.path("started")); err == nil {
				t.Error("a server was started")
			}
			if after := tree(t, b.dir); after != before {
				t.Errorf("the refused command left files; before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// Without --lineage the newest one is shown. A lineage without a record is none that a rollback opened.
func TestCommands_showTheNewestLineage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.path("data"))
	b.write("data/store/runs/r/l0/ledger/000001.json", `{"step":1,"submitted":[{"n":0}],"trained":[0],"next_group":1}`)
	look := func(args ...string) string {
		t.Helper()
		got, code := b.steady(append(args, "--data=DIR/data")...)
		if code != 0 {
			t.Errorf("%v: status %d: %s", args, code, got)
		}
		return got
	}
	if got := look("ledger", "r"); !strings.Contains(got, "1 trained") {
		t.Errorf("with one lineage: %s", got)
	}
	b.write("data/store/runs/r/l1/run.json", `{"run":"r","lineage":"l1","opened":"u","parent":{"run":"r","lineage":"l0","step":1},"start":{"cursor":{},"next_group":1}}`)
	if got := look("ledger", "r"); !strings.Contains(got, "0 trained") {
		t.Errorf("with two lineages: %s", got)
	}
	if got := look("ledger", "r", "--lineage=l0"); !strings.Contains(got, "1 trained") {
		t.Errorf("the old lineage: %s", got)
	}
	if got := look("report", "r", "--out=-"); !strings.Contains(got, "l1 of l0, l1 (after step 1 of l0)") {
		t.Errorf("the report does not name its lineage and the others: %.1500s", got)
	}
}

// A record that cannot be read is a difference (status 5), is named, and comes with what to do.
func TestCommands_nameADamagedRecord(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"run.json", "l0/ledger/000001.json", "l0/ledger/end.json"} {
		for _, text := range []string{"", "{", "not JSON", "[]", "\x00\x01"} {
			b := newBench(t)
			b.store(b.path("data"))
			b.write("data/store/runs/r/"+file, text)
			got, code := b.steady("ledger", "r", "--data=DIR/data")
			if code != exitMismatch || !strings.Contains(got, "error: runs/r/"+file+" is damaged") || !strings.Contains(got, "try: ") {
				t.Errorf("%s with %q: status %d, %swant 5, the file and what to do", file, text, code, got)
			}
		}
	}
}

func TestWorker_aWrongProfileOfTemporal(t *testing.T) {
	b := newBench(t)
	b.write("temporal.toml", `{"`)
	t.Setenv("TEMPORAL_CONFIG_FILE", b.path("temporal.toml"))
	if got, code := b.steady("worker", "--data=DIR/data"); code != exitUsage || !strings.Contains(got, "try: check the variables TEMPORAL_CONFIG_FILE") {
		t.Errorf("status %d, %swant 2 and the variables", code, got)
	}
}

// tree lists the names below a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	if err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		b.WriteString(path + "\n")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestConfigPrint_whatCannotRunHereIsAWarning(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"config print --recipe=demo":           "",
		"config print":                         "warning: cannot be run as it is: model.path",
		"config print --recipe=sc-taco":        "warning: cannot be run as it is: engine.trainer_ranks",
		"config print --recipe=sc-taco --json": "warning: cannot be run as it is: engine.trainer_ranks",
	} {
		var out, errOut bytes.Buffer
		code := run(strings.Fields(args), &out, &errOut)
		if code != exitDone || !strings.Contains(errOut.String(), want) || want == "" && errOut.Len() > 0 {
			t.Errorf("%s: status %d, want 0 and %q:\n%s", args, code, want, &errOut)
		}
		if text := out.String(); strings.Contains(text, "warning:") || !strings.Contains(text, "run") {
			t.Errorf("%s: prints %.200q, want the configuration and nothing else", args, text)
		}
	}
}

func TestReport_goesToStandardOutputOnDemand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.path("data"))
	var out, errOut bytes.Buffer
	code := run([]string{"report", "r", "--data", b.path("data"), "--out", "-"}, &out, &errOut)
	if code != exitDone || !strings.HasPrefix(out.String(), "<!") || !strings.HasSuffix(strings.TrimSpace(out.String()), "</html>") || errOut.Len() == 0 {
		t.Errorf("status %d, standard output %.80q, standard error %q; want the page and the summary apart", code, &out, &errOut)
	}
}

func TestVersion_isACommandAndAFlag(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, args := range []string{"version", "--version"} {
		var out, errOut bytes.Buffer
		if code := run([]string{args}, &out, &errOut); code != exitDone || errOut.Len() > 0 {
			t.Errorf("%s: status %d, %s", args, code, &errOut)
		}
		texts = append(texts, out.String())
	}
	if texts[0] != texts[1] || !strings.HasPrefix(texts[0], "steady ") {
		t.Errorf("%q, want the same version twice", texts)
	}
}

func TestCheckOutput_leavesAnOldFileAsItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"file", "new.html"} {
		if err := checkOutput("--out", b.path(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(b.path("file")); err != nil || string(got) != "text" {
		t.Errorf("the old file holds %q, %v", got, err)
	}
	if _, err := os.Stat(b.path("new.html")); !os.IsNotExist(err) {
		t.Errorf("the new file: %v, want none before there is something to write", err)
	}
	if err := checkOutput("--out", os.DevNull); err != nil {
		t.Errorf("a device: %v", err)
	}
}

func TestReadOnlyPlaces_areRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("closed/old.html", "old")
	for _, name := range []string{"closed/old.html", "closed"} {
		if err := os.Chmod(b.path(name), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(b.path("closed"), 0o700) }) //nolint:gosec // so that it can be removed
	var got map[string]error
	asUser(func() {
		got = map[string]error{
			"an old file":                   checkOutput("--out", b.path("closed/old.html")),
			"a new file":                    checkOutput("--out", b.path("closed/new.html")),
			"a directory":                   checkDir("--data", b.path("closed")),
			"a new directory, further down": checkDir("--data", b.path("closed/a/b")),
		}
	})
	for name, err := range got {
		if text := explained(err); !strings.Contains(text, "permission denied") || !strings.Contains(text, "try: choose") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// asUser calls f on a thread that has an ordinary user's rights on files, also where the tests run as the superuser.
func asUser(f func()) {
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		const nobody = 65534
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0) // the call has no error
		f()
	}()
	<-done
}

// explained is what a person sees of an error.
func explained(err error) string {
	var b bytes.Buffer
	code := explain(context.Background(), err, &b)
	return fmt.Sprintf("%sstatus %d\n", b.String(), code)
}

func TestExplain_showsEveryProblemAndEveryHintOnce(t *testing.T) {
	t.Parallel()
	a := fault.New(fault.Invalid, "a.B", "first\nand more").WithHint("one")
	b := fault.New(fault.NotFound, "c.D", "second: %w", fault.New(fault.Invalid, "e.F", "cause")).WithHint("two")
	c := fault.New(fault.Internal, "g.H", "third").WithHint("one")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "status 0\n"},
		{a, "error: first\nerror: and more\ntry: one\nstatus 2\n"},
		{b, "error: second: cause\ntry: two\nstatus 2\n"},
		{c, "error: g.H: third\ntry: one\nstatus 1\n"},
		{fault.New(fault.Corrupt, "x", "%w", a), "error: first\nerror: and more\ntry: one\nstatus 5\n"},
		{errors.Join(a, errors.Join(b, c)), "error: first\nerror: and more\nerror: second: cause\nerror: g.H: third\ntry: one\ntry: two\nstatus 2\n"},
		{fault.New(fault.Corrupt, "x", "%w", errors.Join(b, a)), "error: second: cause\nerror: first\nerror: and more\ntry: two\nstatus 5\n"},
		{fmt.Errorf("both %w, %w", errors.New("one"), errors.New("two")), "error: both one, two\nstatus 1\n"},
		{&exitError{exitMismatch, a}, "error: first\nerror: and more\ntry: one\nstatus 5\n"},
		{errors.New("plain"), "error: plain\nstatus 1\n"},
	} {
		if got := explained(tt.err); got != tt.want {
			t.Errorf("%v:\n%swant:\n%s", tt.err, got, tt.want)
		}
	}
}

// A new run needs the model that its configuration names; one that goes on has what it needs in the store.
func TestDemoCheck_aRunThatGoesOnNeedsNoModelDirectory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg, _, err := config.Load(config.Options{Recipe: "demo", Sets: []string{"model.path=" + b.path("gone")}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := cfg.JSON()
	if err != nil {
		t.Fatal(err)
	}
	d := demoCmd{Name: "r", ReportTo: b.path("r.html"), serverFlags: serverFlags{Data: b.path("data"), Port: 7233, UIPort: 8233}}
	if err := d.check(t.Context(), cfg, text); !strings.Contains(explained(err), "model.path") {
		t.Errorf("a new run: %v, want that the model is not there", err)
	}
	store, err := artifact.NewFiles(filepath.Join(b.path("data"), "store"))
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r", Lineage: "l0"}
	if _, err := artifact.PutJSON(t.Context(), store, l.RunFile(), record.Run{Run: "r", ConfigDigest: artifact.Digest(text)}); err != nil {
		t.Fatal(err)
	}
	if err := d.check(t.Context(), cfg, text); err != nil {
		t.Errorf("a run that goes on: %v", err)
	}
}
