package activities

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// trained is a control whose run has three trained steps of one group each, and one more group that is open after each of them.
func trained(t *testing.T) *Control {
	t.Helper()
	c := started(t)
	putJSON(t, c.store(), lay.Dataset(), record.Dataset{Dir: "datasets/k", Key: "k", Train: 9})
	group := func(n, tag int) record.Submitted { return record.Submitted{N: n, Problem: n, Tag: tag} }
	for step := 1; step <= 3; step++ {
		led := record.Ledger{Step: step, Submitted: []record.Submitted{group(step, step)}, Trained: []int{step - 1}, Cursor: record.Cursor{Next: step + 1}, NextGroup: step + 1}
		if step == 1 {
			led.Submitted = []record.Submitted{group(0, 1), group(1, 1)}
		}
		putJSON(t, c.store(), lay.Ledger(step), led)
		putJSON(t, c.store(), lay.Result(step), record.Result{Step: step})
	}
	return c
}

func files(t *testing.T, c *Control, under string) map[string]string {
	t.Helper()
	names, err := c.store().List(t.Context(), under)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range names {
		data, _, err := c.store().Get(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		out[n] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return out
}

func opening(lineage string, step int, id string) contract.OpenLineageRequest {
	return contract.OpenLineageRequest{RunKey: contract.RunKey{Run: "r", Lineage: lineage}, Step: step, ID: id}
}

// Whatever a lost attempt left out, the next one with the same id completes; another id opens another lineage. The parent keeps every bit.
func TestOpenLineage_isIdempotentByID(t *testing.T) {
	t.Parallel()
	c := trained(t)
	old := files(t, c, lay.Root())
	want, err := c.openLineage(t.Context(), opening("l0", 2, "u1"), nil)
	if err != nil || want.Lineage != "l1" {
		t.Fatalf("got %+v, %v", want, err)
	}
	// Group 2 was open when step 2 was sealed: its problem comes back.
	start := record.Start{Cursor: record.Cursor{Next: 3, Returned: []record.Returned{{Problem: 2, Submission: 1}}}, NextGroup: 3}
	if d := cmp.Diff(start, want.Start); d != "" {
		t.Errorf("start (-want +got):\n%s", d)
	}
	l1 := record.Layout{Run: "r", Lineage: "l1"}
	whole := files(t, c, l1.Root())
	for name := range whole {
		if name != l1.LineageFile() { // it is written first
			if err := c.store().Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.openLineage(t.Context(), opening("l0", 2, "u1"), nil)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("without %s: %v (-want +got):\n%s", name, err, d)
		}
		if d := cmp.Diff(whole, files(t, c, l1.Root())); d != "" {
			t.Errorf("without %s: files (-want +got):\n%s", name, d)
		}
	}
	if d := cmp.Diff(old, files(t, c, lay.Root())); d != "" {
		t.Errorf("files of the parent (-want +got):\n%s", d)
	}
	other, err := c.openLineage(t.Context(), opening("l0", 2, "u2"), nil)
	if err != nil || other.Lineage != "l2" {
		t.Errorf("another id: got %+v, %v; want l2", other, err)
	}
	if _, err := c.openLineage(t.Context(), opening("l0", 1, "u1"), nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("the same id with another step: got %v, want Invalid", err)
	}
	// A worker can open the new lineage like any other, and its books begin where the record says.
	if _, err := c.Runs.Of(t.Context(), contract.RunKey(l1)); err != nil {
		t.Error(err)
	}
	books, err := ledger.Load(t.Context(), c.store(), l1)
	if d := cmp.Diff(ledger.Start{Step: 2, Cursor: start.Cursor, NextGroup: 3}, books.Start); err != nil || d != "" {
		t.Errorf("books of the lineage: %v (-want +got):\n%s", err, d)
	}
	all, err := record.Lineages(t.Context(), c.store(), "r")
	if err != nil || len(all) != 3 || all[2].Opened != "u2" || *all[1].Parent != (record.Parent{Run: "r", Lineage: "l0", Step: 2}) {
		t.Errorf("lineages %+v, %v", all, err)
	}
}

// The first step of a lineage has no record of its own; its start is that of the lineage.
func TestOpenLineage_fromTheFirstStepOfALineage(t *testing.T) {
	t.Parallel()
	c := trained(t)
	if got, err := c.openLineage(t.Context(), opening("l0", 0, "u0"), nil); err != nil || !cmp.Equal(got.Start, record.Start{}) {
		t.Errorf("from the beginning: got %+v, %v", got, err)
	}
	one, err := c.openLineage(t.Context(), opening("l0", 2, "u1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.openLineage(t.Context(), opening(one.Lineage, 2, "u2"), nil)
	if d := cmp.Diff(one.Start, two.Start); err != nil || d != "" || two.Lineage != "l3" {
		t.Errorf("got %+v, %v; want l3 with the start of %s:\n%s", two, err, one.Lineage, d)
	}
	// So has a run that starts from a checkpoint of such a step.
	save(t, c.store(), record.Layout{Run: "r", Lineage: one.Lineage}, 2)
	child, err := c.startRun(t.Context(), start("child", "two", `{"recipe":"demo","engine":{"backend":"ref"},"run":{"init_run":"r","init_lineage":"l2"}}`), nil)
	if err != nil || child.FirstStep != 2 || child.NextGroup != one.Start.NextGroup || !cmp.Equal(child.Cursor, one.Start.Cursor) {
		t.Errorf("a run from it: got %+v, %v; want its start %+v", child, err, one.Start)
	}
}

func TestOpenLineage_refusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		q    contract.OpenLineageRequest
		text string
		kind fault.Kind
		lose string
	}{
		"a step without a result": {q: opening("l0", 4, "u"), text: "has no result", kind: fault.Invalid},
		"before the first step":   {q: opening("l0", -1, "u"), text: "before the first step", kind: fault.Invalid},
		"no ledger record":        {q: opening("l0", 3, "u"), text: "no ledger record of step 3", kind: fault.NotFound, lose: lay.Ledger(3)},
		"a gap in the ledger":     {q: opening("l0", 3, "u"), text: "follows that of step", kind: fault.Corrupt, lose: lay.Ledger(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := trained(t)
			if tt.lose != "" {
				if err := c.store().Remove(t.Context(), tt.lose); err != nil {
					t.Fatal(err)
				}
			}
			_, err := c.openLineage(t.Context(), tt.q, nil)
			if !fault.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.text) {
				t.Errorf("got %v, want %s with %q", err, tt.kind, tt.text)
			}
			if left := files(t, c, "runs/r/l1"); len(left) > 0 {
				t.Errorf("a refused rollback left %v", left)
			}
		})
	}
}

// The first version of a new lineage comes from its parent's checkpoint, which is made if retention has taken it.
func TestInitPolicy_ofANewLineage(t *testing.T) {
	t.Parallel()
	c := trained(t)
	tr := newTrainer(t, c, new(bool))
	first, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.store().Path(lay.Checkpoint(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	opened, err := c.openLineage(t.Context(), opening("l0", 0, "u"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q := contract.InitPolicyRequest{RunKey: contract.RunKey{Run: "r", Lineage: opened.Lineage}}
	for range 2 {
		got, err := tr.initPolicy(t.Context(), q, nil)
		if err != nil || got != first {
			t.Fatalf("got %+v, %v; want the weights %+v", got, err, first)
		}
	}
	for _, l := range []record.Layout{lay, q.Layout()} {
		dir, err := c.store().Path(l.Checkpoint(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Verify(t.Context(), dir); err != nil {
			t.Errorf("%s: %v", l.Lineage, err)
		}
	}
}

// A checkpoint that a lineage began with stays, whatever else retention removes.
func TestRetention_keepsWhatLineagesBeganWith(t *testing.T) {
	t.Parallel()
	c := trained(t)
	for step := range 9 {
		save(t, c.store(), lay, step)
	}
	if _, err := c.openLineage(t.Context(), opening("l0", 1, "u"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.retain(t.Context(), contract.RetentionRequest{RunKey: key, Step: 8, Threshold: 1}, nil); err != nil {
		t.Fatal(err)
	}
	dir, err := c.store().Path(lay.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, filepath.Base(e))
	}
	// Multiples of 3, the two newest, and that of the lineage.
	if want := []string{"000000", "000001", "000003", "000006", "000007", "000008"}; !cmp.Equal(got, want) {
		t.Errorf("checkpoints %v, want %v", got, want)
	}
}
