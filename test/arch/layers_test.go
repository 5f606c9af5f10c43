package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/steadyrl/steady"

// rule says that the packages that match from must not reach, directly or not, what matches ban. Patterns are
// import paths, or paths in this module that start with "./"; a final "/..." covers the folder.
type rule struct {
	from   []string
	except []string // packages of from that the rule leaves out
	ban    []string
	why    string
}

const (
	sdk  = "go.temporal.io/sdk/..."
	zap  = "go.uber.org/zap"
	yaml = "go.yaml.in/yaml/v4"
	aws  = "github.com/aws/aws-sdk-go-v2/..."
)

var rules = []rule{
	{
		from: []string{"./workflows"},
		ban: []string{
			"./activities", "./workers", "./config", "./internal/dataset", "./internal/sandbox/...", "./internal/judge", "./internal/engine/cpu/...",
			"./internal/engine/ref/...", "./internal/learner", "./internal/policy", "./internal/export", "./internal/report", "./internal/obs", "./internal/metrics", "./internal/trace", "./internal/devserver",
		},
		why: "workflows are deterministic control flow: they know activities by contract only",
	},
	{
		from: []string{"./activities"},
		ban:  []string{"./workflows", "./workers", "./internal/ui", "./internal/devserver", "./internal/doctor"},
		why:  "activities are adapters under the workers; the contract is all that they share with workflows",
	},
	{
		from: []string{"./workers"},
		ban:  []string{"./internal/ui", "./internal/doctor", "./internal/live"},
		why:  "workers run without a person in front of them",
	},
	{
		from:   []string{"./internal/..."},
		except: []string{"./internal/contract", "./internal/obs"},
		ban:    []string{sdk},
		why:    "domain code is usable and testable without Temporal; contract and the SDK's log adapter are the seams",
	},
	{
		from: []string{"./cmd/steady/internal/simulate"},
		ban: []string{
			"./activities", "./workers", "./config", "./internal/engine/cpu/...", "./internal/engine/ref/...",
			"./internal/learner", "./internal/policy",
		},
		why: "a simulation drives the workflows against a model; no machine's code takes part",
	},
	{
		from: []string{"./workflows", "./activities", "./workers"},
		ban:  []string{"./cmd/steady/internal/simulate", "./internal/virtual"},
		why:  "what runs in earnest does not know the simulation",
	},
	{
		from: []string{"./internal/..."},
		ban:  []string{"./config", "./workflows", "./activities", "./workers", "./cmd/..."},
		why:  "domain packages have their own small options; arrows point down only",
	},
	{
		from:   []string{"./internal/..."},
		except: []string{"./internal/obs"},
		ban:    []string{zap},
		why:    "domain code returns errors and results; who handles them logs, once",
	},
	{
		from:   []string{"./internal/..."},
		except: []string{"./internal/metrics", "./internal/trace", "./internal/obs"},
		ban:    []string{"github.com/prometheus/client_golang/...", "go.opentelemetry.io/otel/..."},
		why:    "domain code tells of its time by package span, and of what it did by its results",
	},
	{
		from: []string{"./..."},
		except: []string{
			"./config", "./activities", "./workers", "./cmd/...", "./test/...",
		},
		ban: []string{yaml},
		why: "there is one configuration language and one reader of it",
	},
	{
		from:   []string{"./..."},
		except: []string{"./internal/artifact/bucket", "./cmd/...", "./test/..."},
		ban:    []string{aws},
		why:    "one package knows the protocol of buckets; commands choose it, everybody else has artifact.Store",
	},
	{
		from: []string{"./internal/crashpoint", "./internal/durable", "./internal/fault", "./internal/rng", "./internal/span", "./internal/ui"},
		ban:  []string{"./..."},
		why:  "leaves import nothing of this module",
	},
	{
		from: []string{"./internal/rl"},
		ban:  []string{"./internal/engine/...", "./internal/model", "./internal/artifact"},
		why:  "the mathematics of the update is pure",
	},
	{
		from: []string{"./internal/engine/..."},
		ban:  []string{"./internal/artifact", "./internal/tokenizer", "./internal/judge", "./internal/sandbox/...", "./internal/dataset", "github.com/parquet-go/parquet-go"},
		why:  "engines turn tokens into tokens; they know no text, reward or file format",
	},
	{
		from: []string{"./internal/sandbox/...", "./internal/judge"},
		ban:  []string{"./internal/engine/...", "./internal/model", "./internal/weights", "./internal/artifact"},
		why:  "what runs untrusted code holds no weights and no store",
	},
	{
		from: []string{"./config"},
		ban:  []string{sdk, zap, "./internal/engine/...", "./internal/artifact"},
		why:  "loading a configuration is quick and has no side effects",
	},
}

// pkg is what the tests need of the output of go list.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Error      *struct{ Err string }
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps,Error", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr(err))
	}
	var pkgs []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("%s cannot be loaded: %s", p.ImportPath, p.Error.Err)
		}
		pkgs = append(pkgs, p)
	}
}

func stderr(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

func matches(pattern, importPath string) bool {
	if rest, ok := strings.CutPrefix(pattern, "./"); ok {
		if rest == "..." {
			return importPath == module || strings.HasPrefix(importPath, module+"/")
		}
		pattern = path.Join(module, rest)
	}
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return importPath == folder || strings.HasPrefix(importPath, folder+"/")
	}
	return importPath == pattern
}

func matchesAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, importPath) })
}

// violations lists what r forbids among pkgs.
func violations(r rule, pkgs []pkg) []string {
	var out []string
	for _, p := range pkgs {
		if !matchesAny(r.from, p.ImportPath) || matchesAny(r.except, p.ImportPath) {
			continue
		}
		for _, dep := range p.Deps {
			if matchesAny(r.ban, dep) {
				out = append(out, fmt.Sprintf("%s reaches %s: %s", p.ImportPath, dep, r.why))
			}
		}
	}
	return out
}

func TestLayers_noPackageReachesWhatItMustNot(t *testing.T) {
	t.Parallel()
	pkgs := listPackages(t)
	for _, r := range rules {
		for _, v := range violations(r, pkgs) {
			t.Error(v)
		}
	}
}

// A rename must not switch a rule off.
func TestLayers_everyPatternMatchesSomething(t *testing.T) {
	t.Parallel()
	var known []string
	for _, p := range listPackages(t) {
		known = append(append(known, p.ImportPath), p.Deps...)
	}
	for _, r := range rules {
		for _, pattern := range slices.Concat(r.from, r.except, r.ban) {
			if !slices.ContainsFunc(known, func(p string) bool { return matches(pattern, p) }) {
				t.Errorf("pattern %s of the rule %q matches no package", pattern, r.why)
			}
		}
	}
}

func TestLayers_aViolationIsFound(t *testing.T) {
	t.Parallel()
	pkgs := []pkg{
		{ImportPath: module + "/internal/rng", Deps: []string{"fmt", module + "/internal/fault"}},
		{ImportPath: module + "/internal/contract", Deps: []string{"go.temporal.io/sdk/workflow"}},
		{ImportPath: module + "/internal/judge", Deps: []string{"go.temporal.io/sdk/internal/log", module + "/config"}},
	}
	var got []string
	for _, r := range rules {
		for _, v := range violations(r, pkgs) {
			got = append(got, v[:strings.Index(v, ":")])
		}
	}
	want := []string{
		module + "/internal/judge reaches go.temporal.io/sdk/internal/log",
		module + "/internal/judge reaches " + module + "/config",
		module + "/internal/rng reaches " + module + "/internal/fault",
	}
	if !slices.Equal(got, want) {
		t.Errorf("violations = %q, want %q", got, want)
	}
}

// workflowImports is everything that workflow code may import directly; the SDK's own packages come on top.
var workflowImports = []string{
	"cmp", "encoding/json", "errors", "fmt", "maps", "math", "slices", "sort", "strconv", "strings", "time",
	module + "/internal/artifact", module + "/internal/contract", module + "/internal/fault", module + "/internal/record", module + "/internal/rng",
	"go.temporal.io/sdk/converter", "go.temporal.io/sdk/log", "go.temporal.io/sdk/temporal", "go.temporal.io/sdk/workflow", "go.temporal.io/sdk/worker", "go.temporal.io/api/enums/v1",
}

func TestLayers_workflowsImportOnlyPurePackages(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if p.ImportPath != module+"/workflows" {
			continue
		}
		for _, i := range p.Imports {
			if !slices.Contains(workflowImports, i) {
				t.Errorf("workflows imports %s, which is not on the list of packages that are safe in deterministic code", i)
			}
		}
		return
	}
	t.Error("there is no package workflows")
}
