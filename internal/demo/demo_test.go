package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/judge"
)

var update = flag.Bool("update", false, "write the bundled files")

// python runs programs one after the other in one process, where a start for each would take a minute.
type python struct {
	mu  sync.Mutex
	in  *json.Encoder
	out *bufio.Scanner
}

const driver = `
import sys, io, json, builtins
sys.modules['numpy'] = None
def no(*a, **k): raise PermissionError('no files')
builtins.open = no
lines, out = sys.stdin, sys.stdout
for line in lines:
    p = json.loads(line)
    sys.stdin, sys.stdout = io.StringIO(p['Input']), io.StringIO()
    kind = ''
    try:
        exec(compile(p['Code'], 'main', 'exec'), {'__name__': '__main__'})
    except SyntaxError: kind = 'compile_error'
    except BaseException: kind = 'runtime_error'
    text = sys.stdout.getvalue()
    sys.stdin, sys.stdout = lines, out
    print(json.dumps({'Kind': kind, 'Text': text}), flush=True)
`

func startPython(t *testing.T) *python {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", driver)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("these tests need python3: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	p := &python{in: json.NewEncoder(in), out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 1<<20)
	return p
}

func (p *python) run(code, input string) (kind judge.Kind, text string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.in.Encode(map[string]string{"Code": code, "Input": input}); err != nil {
		return "", "", err
	}
	p.out.Scan()
	var r struct {
		Kind judge.Kind
		Text string
	}
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		return "", "", err
	}
	return r.Kind, r.Text, nil
}

// judge does what the sandboxed judge does, for programs that are not hostile.
func (p *python) judge(_ context.Context, code string, tests []judge.Test) (judge.Verdict, error) {
	v := judge.Verdict{FormatOK: true, Kind: judge.Accepted, Total: len(tests)}
	for _, t := range tests {
		kind, text, err := p.run(code, t.Input)
		switch {
		case err != nil:
			return judge.Verdict{}, err
		case kind == "" && judge.Compare([]byte(t.Output), []byte(text)):
			kind = judge.Accepted
			v.Passed++
		case kind == "":
			kind = judge.WrongAnswer
		}
		if kind != judge.Accepted && v.Kind == judge.Accepted {
			v.Kind = kind
		}
		v.Tests = append(v.Tests, judge.TestVerdict{Kind: kind})
	}
	return v, nil
}

func words(statement string) (int, error) { return len(strings.Fields(statement)), nil }

// prepare sends the demo's shard through the pipeline.
func prepare(t *testing.T, p *python, excluded map[string]bool) (dir string, m dataset.Manifest) {
	t.Helper()
	shard, err := demo.Parquet(demo.Seed)
	if err != nil {
		t.Fatal(err)
	}
	w, err := dataset.OpenWork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := dataset.Recipe{Seed: 1, Train: 192, Dev: 64, Excluded: excluded, MaxPrompt: 300, Tries: 4, CountPrompt: words, Run: p.judge, Parallel: 2}
	in := dataset.Input{Name: demo.ShardName, Size: int64(len(shard))}
	if _, err := r.Shard(t.Context(), w, 0, in, bytes.NewReader(shard), nil); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "set")
	if m, err = r.Finish(t.Context(), w, dir, 1); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

// TestShard_everyRowHasItsDecision sends the whole shard through the pipeline. Every ordinary problem must be kept, which
// checks the expected outputs against Python, and every quirk must be seen.
func TestShard_everyRowHasItsDecision(t *testing.T) {
	t.Parallel()
	excluded, err := dataset.ReadExcluded(bytes.NewReader(demo.Exclusions()), "exclusions")
	if err != nil {
		t.Fatal(err)
	}
	dir, m := prepare(t, startPython(t), excluded)
	if m.Train != 192 || m.Dev != 64 {
		t.Errorf("%d train and %d dev, want 192 and 64", m.Train, m.Dev)
	}
	if _, err := dataset.Check(t.Context(), dir); err != nil {
		t.Errorf("Check: %v", err)
	}
	decisions, err := dataset.Decisions(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	good := 0
	for _, d := range decisions {
		reason := d.Reason
		if reason == dataset.NotSelected {
			reason = dataset.Kept // which of the good ones are left over is the split's affair
		}
		if reason == dataset.Kept {
			good++
		}
		if d.Source != "quirks" && d.Source != "" {
			if reason != dataset.Kept {
				t.Errorf("ordinary row %d: %s (%s), want kept", d.Row, d.Reason, d.Evidence)
			}
			continue
		}
		got = append(got, string(reason))
	}
	for _, q := range demo.Quirks() {
		want = append(want, string(q.Want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions of the quirks %v (-want +got):\n%s", demo.Quirks(), diff)
	}
	if good != m.Good {
		t.Errorf("%d good decisions, the manifest says %d", good, m.Good)
	}
}

func TestBundledFiles(t *testing.T) {
	t.Parallel()
	shard, err := demo.Parquet(demo.Seed)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{demo.ShardName: shard, "excluded.jsonl": demo.Exclusions()} {
		path := filepath.Join("data", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s (%d bytes) is not what the generator makes (%d bytes); run go test ./internal/demo -update", path, len(got), len(want))
		}
	}
	if len(shard) > 300_000 {
		t.Errorf("the shard has %d bytes, want at most 300,000", len(shard))
	}
}

// TestExpected fixes where the demo starts: clearly wrong, yet with the right answer in sight.
func TestExpected(t *testing.T) {
	t.Parallel()
	sampled, mode := demo.Expected(demo.Seed, demo.DefaultNoise(), 200)
	t.Logf("sampled %.3f, most frequent %.3f", sampled, mode)
	if sampled < 0.35 || sampled > 0.5 {
		t.Errorf("a perfect imitation is right in %.3f of its samples, want 0.35 to 0.5", sampled)
	}
	if mode > sampled {
		t.Errorf("the most frequent answer is right in %.3f, want less than %.3f", mode, sampled)
	}
	if sampled, mode := demo.Expected(demo.Seed, demo.Noise{}, 1); sampled != 1 || mode != 1 {
		t.Errorf("without noise %v and %v, want 1 and 1", sampled, mode)
	}
}

// TestCorpus runs the shown programs: what a tool returned must be what Python prints, and a right program must differ
// from a wrong one somewhere.
func TestCorpus(t *testing.T) {
	t.Parallel()
	p := startPython(t)
	bundled := map[string]bool{}
	for _, s := range demo.Statements(demo.Seed) {
		bundled[s] = true
	}
	const n = 1500
	right, tools, open := 0, 0, 0
	i := 0
	for e := range demo.Corpus(demo.Seed, demo.DefaultNoise()) {
		if i++; i > n {
			break
		}
		if bundled[e.Statement] {
			t.Errorf("the corpus holds the bundled problem %q", e.Statement)
		}
		if e.Right {
			right++
		}
		last := e.Turns[len(e.Turns)-1]
		if _, ok := judge.ExtractCode(last.Content); !ok {
			open++
		}
		if len(e.Turns) == 1 {
			continue
		}
		tools++
		if len(e.Turns) != 3 || e.Turns[1].Role != "tool" {
			t.Fatalf("turns %+v, want a call, an observation, an answer", e.Turns)
		}
		var call struct {
			Name      string
			Arguments struct{ Code, Stdin string }
		}
		body, ok := strings.CutPrefix(e.Turns[0].Content, "<tool_call>\n")
		body, ok2 := strings.CutSuffix(body, "\n</tool_call>")
		if err := json.Unmarshal([]byte(body), &call); err != nil || !ok || !ok2 || call.Name != "run_python" {
			t.Fatalf("the call %q: %v", e.Turns[0].Content, err)
		}
		kind, text, err := p.run(call.Arguments.Code, call.Arguments.Stdin)
		if err != nil || kind != "" || text != e.Turns[1].Content {
			t.Errorf("%q on %q: %s %q %v, the corpus says %q", call.Arguments.Code, call.Arguments.Stdin, kind, text, err, e.Turns[1].Content)
		}
	}
	noise := demo.DefaultNoise()
	for _, share := range []struct {
		name     string
		count    int
		low, top float64
	}{{"right", right, 0.33, 0.5}, {"tool", tools, noise.Tool * 0.7, noise.Tool * 1.3}, {"open", open, noise.Unclosed * 0.3, noise.Unclosed * 2}} {
		if got := float64(share.count) / n; got < share.low || got > share.top {
			t.Errorf("share of %s answers %.3f, want %.3f to %.3f", share.name, got, share.low, share.top)
		}
	}
}
