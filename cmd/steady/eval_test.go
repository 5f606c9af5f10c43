package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/demo/demotest"
	"github.com/steadyrl/steady/internal/engine/external/externaltest"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/weights"
)

// demoProblems is a prepared data set of demo problems.
func demoProblems(t *testing.T, dev int) string {
	t.Helper()
	set, err := demotest.Prepare(t.Context(), t.TempDir(), 4, dev)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func evalArgs(set, out string, more ...string) []string {
	return append([]string{"eval", "--model", "bundled", "--recipe", "demo", "--data", "taco", "--set", set, "--out", out}, more...)
}

func resultFile(t *testing.T, out string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, eval.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A mistake ends the command with status 2, names the flag or key and says what to do, before an interpreter is looked for or the
// evaluation has a file.
func TestEval_badInput(t *testing.T) {
	t.Parallel()
	set, dir := demoProblems(t, 2), t.TempDir()
	out := filepath.Join(dir, "out")
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string // after the good ones
		want string
	}{
		"no model":               {[]string{"--model", filepath.Join(dir, "absent")}, "--model"},
		"a file for a model":     {[]string{"--model", file}, "is a file"},
		"an empty model":         {[]string{"--model", empty}, "config.json"},
		"no set":                 {[]string{"--set", filepath.Join(dir, "absent")}, "--set"},
		"a set of nothing":       {[]string{"--set", empty}, "manifest"},
		"two sets":               {[]string{"--set", set, "--set", set}, "--set has 2 paths"},
		"no LiveCodeBench":       {[]string{"--data", "lcb", "--set", empty}, "test.jsonl"},
		"no DeepCoder":           {[]string{"--data", "deepcoder", "--set", empty}, "parquet"},
		"a bad day":              {[]string{"--data", "lcb", "--set", empty, "--from", "yesterday"}, "2024-08-01"},
		"days of TACO":           {[]string{"--from", "2024-08-01"}, "--from"},
		"unknown data":           {[]string{"--data", "humaneval"}, "--data"},
		"unknown split":          {[]string{"--split", "test"}, "--split"},
		"no sample":              {[]string{"--samples", "0"}, "--samples"},
		"k above samples":        {[]string{"--samples", "4", "--k", "1,8"}, "--k"},
		"k of 0":                 {[]string{"--k", "0"}, "--k"},
		"negative limit":         {[]string{"--limit", "-1"}, "--limit"},
		"nothing at once":        {[]string{"--max-sequences", "0"}, "--max-sequences"},
		"temperature infinite":   {[]string{"--temperature", "Inf"}, `--temperature: want a number, got "Inf"`},
		"temperature tiny":       {[]string{"--temperature", "1e-300"}, "validation.temperature"},
		"temperature 0":          {[]string{"--temperature", "0"}, "validation.temperature"},
		"no response":            {[]string{"--max-response", "0"}, "rollout.max_response"},
		"longer than the model":  {[]string{"--max-response", "4096"}, "rollout.max_total"},
		"a bad key":              {[]string{"--assign", "rollout.max_promt=1"}, "max_promt"},
		"a bad value":            {[]string{"--assign", "sandbox.time_limit=0s"}, "sandbox.time_limit"},
		"what this build lacks":  {[]string{"--assign", "rollout.max_calls_per_turn=2"}, "rollout.max_calls_per_turn"},
		"no such configuration":  {[]string{"-f", filepath.Join(dir, "absent.json")}, "absent.json"},
		"an endpoint, no name":   {[]string{"--endpoint", "http://127.0.0.1:1"}, "--served-model"},
		"a name, no endpoint":    {[]string{"--served-model", "m"}, "--endpoint"},
		"no URL":                 {[]string{"--endpoint", "host", "--served-model", "m"}, "http://"},
		"unknown dialect":        {[]string{"--dialect", "ollama"}, "--dialect"},
		"a file for a directory": {[]string{"--out", file}, "is a file, not a directory"},
		"below a file":           {[]string{"--out", filepath.Join(file, "below")}, "not a directory"},
		"the name of a file":     {[]string{"--out", filepath.Join(dir, "new.json")}, "an evaluation fills a directory"},
		"a file in a new folder": {[]string{"--out", filepath.Join(dir, "new", "result.jsonl")}, "an evaluation fills a directory"},
		"no name":                {[]string{"--out", ""}, "the name is empty"},
		"a directory in use":     {[]string{"--out", dir}, "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"eval", "--recipe", "demo"}
			for flag, value := range map[string]string{"--model": "bundled", "--data": "taco", "--set": set, "--out": out} {
				if !slices.Contains(tt.args, flag) {
					args = append(args, flag, value)
				}
			}
			code, printed, errOut := steady(t, append(args, tt.args...)...)
			if code != exitUsage || printed != "" || !strings.Contains(errOut, tt.want) || !strings.Contains(errOut, "try: ") && !strings.Contains(errOut, "want at least") {
				t.Errorf("status %d, output %q, errors:\n%swant status 2, %q and what to do", code, printed, errOut, tt.want)
			}
		})
	}
}

func TestEval_helpTeaches(t *testing.T) {
	t.Parallel()
	code, out, _ := steady(t, "eval", "--help")
	for _, word := range []string{"--model STORE/runs/RUN/l0/export -f STORE/runs/RUN/l0/config.json --data taco", "--endpoint", "compare", "docs/eval.md", "Exit status"} {
		if code != exitDone || !strings.Contains(out, word) {
			t.Errorf("status %d, the help lacks %q:\n%s", code, word, out)
		}
	}
}

// The bundled model on demo problems, in the real sandbox: killed and interrupted, then finished with another number of threads and
// programs, the file has the same bytes as that of an evaluation that was left alone.
func TestEval_sameFileAfterKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	const problems = 12
	set, dir := demoProblems(t, problems), t.TempDir()
	whole, killed := filepath.Join(dir, "whole"), filepath.Join(dir, "killed")
	finished := func() int {
		done, err := filepath.Glob(filepath.Join(killed, "problems", "*", "done.json"))
		if err != nil {
			t.Fatal(err)
		}
		return len(done)
	}
	code, out, errOut := steady(t, evalArgs(set, whole, "--samples=2", "--threads=1")...)
	if code != exitDone || !strings.Contains(out, "pass@2") || !strings.Contains(out, fmt.Sprintf("%d problems, 2 responses each", problems)) || !strings.Contains(errOut, fmt.Sprintf("%[1]d of %[1]d problems", problems)) {
		t.Fatalf("status %d:\n%s%s", code, out, errOut)
	}
	for _, how := range []os.Signal{syscall.SIGKILL, os.Interrupt} {
		// It must have finished a problem of its own: a process that has only just started does not listen yet.
		before := finished()
		cmd := exec.CommandContext(t.Context(), os.Args[0], evalArgs(set, killed, "--samples=2", "--threads=1", "--slots=1", "--max-sequences=1")...) //nolint:gosec // this program
		cmd.Env = append(os.Environ(), asSteady+"=1")
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, 2*time.Minute, fmt.Sprintf("more than %d finished problems", before), func() bool { return finished() > before })
		_ = cmd.Process.Signal(how)
		err := cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); err == nil || how == os.Interrupt && code != exitInterrupted || how != os.Interrupt && code != -1 {
			t.Fatalf("%v: %v, status %d:\n%s", how, err, code, &said)
		}
	}
	if _, err := os.Stat(filepath.Join(killed, eval.ResultFile)); !os.IsNotExist(err) {
		t.Errorf("half an evaluation has a result: %v", err)
	}
	// Another seed is another evaluation.
	if code, _, errOut := steady(t, evalArgs(set, killed, "--samples=2", "--seed=1")...); code != exitUsage || !strings.Contains(errOut, "seed was 42, now 1") {
		t.Errorf("another seed: status %d, %s", code, errOut)
	}
	code, out, errOut = steady(t, evalArgs(set, killed, "--samples=2", "--threads=2", "--slots=2", "--json")...)
	if code != exitDone || !strings.Contains(errOut, "were finished before") {
		t.Fatalf("status %d:\n%s", code, errOut)
	}
	if want := resultFile(t, whole); resultFile(t, killed) != want || out != want {
		t.Errorf("other bytes after kills: %s, printed %s, want %s", resultFile(t, killed), out, want)
	}
	code, out, errOut = steady(t, "eval", "compare", filepath.Join(whole, eval.ResultFile), filepath.Join(killed, eval.ResultFile))
	if code != exitDone || !strings.Contains(out, fmt.Sprintf("better on 0, worse on 0, equal on %d", problems)) {
		t.Errorf("compare: status %d:\n%s%s", code, out, errOut)
	}
	if code, _, errOut := steady(t, "eval", "compare", filepath.Join(whole, eval.SettingsFile), filepath.Join(whole, eval.ResultFile)); code != exitUsage || !strings.Contains(errOut, "settings.json") {
		t.Errorf("compare with another file: status %d, %s", code, errOut)
	}
}

// tinyModel is a model directory whose reference engine answers at once, and its weights.
func tinyModel(t *testing.T) (string, *model.Weights) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, demo.Model()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, weights.ConfigFile)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	for key, n := range map[string]int{"head_dim": 4, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1} {
		c[key] = n
	}
	if text, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := weights.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	w := model.NewWeights(conf)
	w.Init(1, 0.5)
	return dir, w
}

// A server is the sampler: what it samples is judged and recorded with its name; one that lacks something is refused with what to
// do about it, and one that is gone is a fault, no usage.
func TestEval_overAnEndpoint(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	set := demoProblems(t, 2)
	dir, w := tinyModel(t)
	for _, dialect := range []string{"vllm", "sglang"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			server := externaltest.Start(t, dialect, w)
			server.Key = "sesame"
			args := func(out string, more ...string) []string {
				return evalArgs(set, out, append([]string{
					"--model", dir, "--endpoint", server.URL, "--endpoint-key", "sesame", "--served-model", externaltest.ModelName, "--dialect", dialect, "--max-response", "6",
				}, more...)...)
			}
			out := t.TempDir()
			if code, _, errOut := steady(t, args(out)...); code != exitDone {
				t.Fatalf("status %d:\n%s", code, errOut)
			}
			r, err := eval.Read(filepath.Join(out, eval.ResultFile))
			if err != nil {
				t.Fatal(err)
			}
			if m := r.Settings.Model; m.Engine != dialect || m.Served != externaltest.ModelName || m.Weights != "" || r.Totals.Responses != 2 || r.Totals.Metrics.MeanTokens == 0 {
				t.Errorf("%+v, %+v", m, r.Totals)
			}
			asked := len(server.Asked())
			if code, _, errOut := steady(t, args(out)...); code != exitDone || strings.Contains(resultFile(t, out), "sesame") {
				t.Errorf("again: status %d:\n%s", code, errOut)
			}
			probes := asked - 2 // of the start
			if again := len(server.Asked()) - asked; again > probes {
				t.Errorf("%d requests for tokens at a second start, %d prove the server", again, probes)
			}
			for f, want := range map[externaltest.Fault]string{
				externaltest.Raw: "processed_logprobs", externaltest.TextOnly: "", externaltest.Truncates: "", externaltest.StripsStop: "", externaltest.OtherName: "lists the names",
			} {
				server.Set(f)
				code, _, errOut := steady(t, args(t.TempDir())...)
				if code != exitUsage || !strings.Contains(errOut, "try: ") || dialect == "vllm" && !strings.Contains(errOut, want) {
					t.Errorf("%s: status %d:\n%s", f, code, errOut)
				}
			}
			server.Set(externaltest.Status500)
			if code, _, errOut := steady(t, args(t.TempDir())...); code != exitRunFailed {
				t.Errorf("a server that fails: status %d:\n%s", code, errOut)
			}
			server.Set(externaltest.None)
			if code, _, errOut := steady(t, args(t.TempDir(), "--endpoint-key", "open")...); code != exitUsage && code != exitRunFailed || strings.Contains(errOut, "open") {
				t.Errorf("a wrong key: status %d:\n%s", code, errOut)
			}
		})
	}
	if code, _, errOut := steady(t, evalArgs(set, t.TempDir(), "--model", dir, "--endpoint", "http://127.0.0.1:1", "--served-model", "m")...); code != exitRunFailed {
		t.Errorf("nobody there: status %d:\n%s", code, errOut)
	}
}

// Files of LiveCodeBench and DeepCoder are evaluated as they are; what cannot be is counted by its reason.
func TestEval_otherDataSets(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs; left out by -short")
	}
	dir := t.TempDir()
	tiny, w := tinyModel(t)
	files, err := weights.Shards(w, weights.BF16, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(tiny, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type row struct {
		Problem string `parquet:"problem"`
		Tests   string `parquet:"tests"`
	}
	deep := filepath.Join(dir, "d.parquet")
	err = parquet.WriteFile(deep, []row{{"Add.", `[{"input": "1", "output": "2"}]`}, {"Call.", `[{"input": 1, "output": 2, "fn_name": "f"}]`}, {"Bad.", "?"}})
	if err != nil {
		t.Fatal(err)
	}
	live := lcbDir(t, dir)
	for _, name := range []string{"test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"} {
		if err := os.WriteFile(filepath.Join(live, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for kind, tt := range map[string]struct {
		set  string
		id   string
		left map[string]int
		more []string
	}{
		"deepcoder": {deep, "codeforces/train/00000", map[string]int{"function": 1, "bad_tests": 1}, nil},
		"lcb":       {live, "livecodebench/abc400_a", nil, []string{"--until", "2024-06-01"}},
	} {
		out := filepath.Join(dir, "out-"+kind)
		args := append([]string{"eval", "--model", tiny, "--recipe", "demo", "--max-response", "5", "--data", kind, "--set", tt.set, "--out", out}, tt.more...)
		code, text, errOut := steady(t, args...)
		if code != exitDone {
			t.Errorf("%s: status %d:\n%s", kind, code, errOut)
			continue
		}
		r, err := eval.Read(filepath.Join(out, eval.ResultFile))
		if err != nil {
			t.Fatal(err)
		}
		if tot := r.Totals; tot.Problems != 1 || !maps.Equal(tot.LeftOut, tt.left) || r.Problems[0].ID != tt.id || len(tt.left) > 0 != strings.Contains(text, "left out") {
			t.Errorf("%s: %+v of %+v\n%s", kind, tot, r.Problems, text)
		}
		if code, _, errOut := steady(t, append(args, "--limit", "1")...); code != exitUsage || !strings.Contains(errOut, "data.limit was not given, now 1") {
			t.Errorf("%s, another limit: status %d:\n%s", kind, code, errOut)
		}
	}
}

// Weights that are not those of the certificate beside them are no model to evaluate.
func TestEval_refusesAChangedExport(t *testing.T) {
	t.Parallel()
	set := demoProblems(t, 2)
	dir := filepath.Join(t.TempDir(), "export")
	if err := os.CopyFS(dir, demo.Model()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "certificate.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := steady(t, evalArgs(set, t.TempDir(), "--model", dir)...)
	if code != exitMismatch || !strings.Contains(errOut, "certificate") {
		t.Errorf("status %d:\n%s", code, errOut)
	}
}
