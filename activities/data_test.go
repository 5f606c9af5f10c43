package activities_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/activities"
	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/internal/chat"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/judge"
	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/tokenizer"
)

// passes is a judge for whom every program is right.
type passes struct{}

func (passes) JudgeCode(_ context.Context, _ string, tests []judge.Test) (judge.Verdict, error) {
	return judge.Verdict{Kind: judge.Accepted, Passed: len(tests), Total: len(tests)}, nil
}

// The length of a prompt is that of the whole prompt, with system line and tool schema, in tokens of the model's own tokenizer.
func TestDataRecipe_countsTheWholePrompt(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{"demo": filepath.Join(testutil.Root(), "internal", "demo", "model")}
	qwen := os.Getenv("STEADY_QWEN3_TOKENIZER")
	if qwen == "" {
		qwen = filepath.Join(testutil.Root(), ".tools", "qwen3")
	}
	if _, err := os.Stat(filepath.Join(qwen, tokenizer.FileName)); err == nil {
		dirs["qwen3"] = qwen
	}
	for name, dir := range dirs {
		tok, err := tokenizer.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		fixed, err := chat.Prompt(tok, "", false)
		if err != nil {
			t.Fatal(err)
		}
		if name == "qwen3" && (len(fixed) < 200 || len(fixed) > 230) {
			t.Errorf("an empty statement has %d tokens, want about 214", len(fixed))
		}
		c := config.Default()
		c.Rollout.MaxPrompt = len(fixed) + 50
		var rows []dataset.Row
		var want []dataset.Reason
		statement := "A statement"
		for n := 0; n < 60; n++ {
			statement += fmt.Sprintf(" %c", 'a'+n%26)
			ids, err := chat.Prompt(tok, statement, !c.Rollout.Thinking)
			if err != nil {
				t.Fatal(err)
			}
			reason := dataset.Kept
			if len(ids) > c.Rollout.MaxPrompt {
				reason = dataset.PromptTooLong
			}
			text, solutions, tests, starter := statement, `["x"]`, `{"inputs":["1"],"outputs":["1"]}`, ""
			rows = append(rows, dataset.Row{Question: &text, Solutions: &solutions, InputOutput: &tests, StarterCode: &starter})
			want = append(want, reason)
		}
		if want[0] != dataset.Kept || want[len(want)-1] != dataset.PromptTooLong {
			t.Fatalf("%s: the limit is not in the middle", name)
		}
		for i, d := range prepared(t, activities.DataRecipe(c, tok, nil, passes{}, "3.12.3", 2), rows) {
			got := d.Reason
			if got == dataset.DuplicateText || got == dataset.NotSelected {
				got = dataset.Kept
			}
			if got != want[i] {
				t.Errorf("%s: statement %d: %s (%s), want %s", name, i, d.Reason, d.Evidence, want[i])
			}
			if got == dataset.PromptTooLong && !strings.Contains(d.Evidence, fmt.Sprintf("the limit is %d", c.Rollout.MaxPrompt)) {
				t.Errorf("%s: evidence %q, want the limit", name, d.Evidence)
			}
		}
	}
}

// prepared prepares rows and returns the decisions.
func prepared(t *testing.T, r *dataset.Recipe, rows []dataset.Row) []dataset.Decision {
	t.Helper()
	var shard bytes.Buffer
	if err := parquet.Write(&shard, rows); err != nil {
		t.Fatal(err)
	}
	w, err := dataset.OpenWork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := dataset.Input{Name: "s.parquet", Size: int64(shard.Len())}
	if _, err := r.Shard(t.Context(), w, 0, in, bytes.NewReader(shard.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "set")
	if _, err := r.Finish(t.Context(), w, dir, 1); err != nil {
		t.Fatal(err)
	}
	ds, err := dataset.Decisions(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}
