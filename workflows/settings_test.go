package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// answer is what became of an update.
type answer struct {
	rejected, failed error
	completed        bool
}

func (a *answer) Accept()          {}
func (a *answer) Reject(err error) { a.rejected = err }
func (a *answer) Complete(_ any, err error) {
	a.completed, a.failed = true, err
}

func number(n int) *int { return &n }

// sent is the JSON form of an input, as the command line sends it.
func sent(text string) any { return json.RawMessage(text) }

func TestTrainRun_updatesOfSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		update, input string
		mode          string
		refused       string // part of the answer
		want          contract.Control
	}{
		"a rate":                        {update: contract.UpdateRate, input: `{"learning_rate": 1e-5}`, want: contract.Control{Rate: contract.Rate{LearningRate: 1e-5}}},
		"a rate from a step":            {update: contract.UpdateRate, input: `{"learning_rate": 1e-5, "from_step": 4}`, want: contract.Control{Rate: contract.Rate{From: 4, LearningRate: 1e-5}}},
		"a rate in mode sync":           {update: contract.UpdateRate, input: `{"learning_rate": 1e-5}`, mode: "sync", want: contract.Control{Rate: contract.Rate{LearningRate: 1e-5}}},
		"no rate":                       {update: contract.UpdateRate, input: `{}`, refused: "learning_rate must be greater than 0"},
		"a negative rate":               {update: contract.UpdateRate, input: `{"learning_rate": -1e-5}`, refused: "must be greater than 0"},
		"a rate that is too large":      {update: contract.UpdateRate, input: `{"learning_rate": 3}`, refused: "at most 1"},
		"a rate that is text":           {update: contract.UpdateRate, input: `{"learning_rate": "1e-5"}`, refused: `set_learning_rate: "learning_rate" is the text "1e-5", want a number`},
		"a misspelt key":                {update: contract.UpdateRate, input: `{"lr": 1e-5}`, refused: `"lr" is not known (known: learning_rate, from_step)`},
		"a trained step":                {update: contract.UpdateRate, input: `{"learning_rate": 1e-5, "from_step": 2}`, refused: "after the step 2 that is trained"},
		"a negative step":               {update: contract.UpdateRate, input: `{"learning_rate": 1e-5, "from_step": -2}`, refused: "from_step must be 0"},
		"a step after the last":         {update: contract.UpdateRate, input: `{"learning_rate": 1e-5, "from_step": 7}`, refused: "after the last step"},
		"a threshold":                   {update: contract.UpdateThreshold, input: `{"threshold": 3}`, want: contract.Control{Threshold: 3}},
		"a threshold up to the prefill": {update: contract.UpdateThreshold, input: `{"threshold": 2}`, refused: "greater than the prefill (2)"},
		"no threshold":                  {update: contract.UpdateThreshold, input: `{}`, refused: "greater than the prefill"},
		"a threshold out of bounds":     {update: contract.UpdateThreshold, input: `{"threshold": 1001}`, refused: "at most 1000"},
		"a threshold in mode sync":      {update: contract.UpdateThreshold, input: `{"threshold": 3}`, mode: "sync", refused: "in mode sync"},
		"a threshold with another key":  {update: contract.UpdateThreshold, input: `{"threshold": 3, "step": 4}`, refused: `"step" is not known (known: threshold)`},
		"a prefill":                     {update: contract.UpdatePrefill, input: `{"prefill": 3}`, want: contract.Control{Prefill: number(3)}},
		"a prefill of nothing":          {update: contract.UpdatePrefill, input: `{"prefill": 0}`, want: contract.Control{Prefill: number(0)}},
		"no prefill":                    {update: contract.UpdatePrefill, input: `{}`, refused: `want {"prefill": N}`},
		"a prefill up to the threshold": {update: contract.UpdatePrefill, input: `{"prefill": 4}`, refused: "smaller than the threshold (4)"},
		"a prefill for more groups than the server bears": {update: contract.UpdatePrefill, input: `{"prefill": 100000}`, refused: "more groups in flight than the 1000"},
		"a negative prefill":                              {update: contract.UpdatePrefill, input: `{"prefill": -1}`, refused: "at least 0"},
		"a prefill in mode sync":                          {update: contract.UpdatePrefill, input: `{"prefill": 3}`, mode: "sync", refused: "in mode sync"},
	} {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s paused=%v", name, paused), func(t *testing.T) {
				t.Parallel()
				w := &runWorld{mode: c.mode}
				env := newRunEnv(t, w)
				got, pause := &answer{}, &answer{}
				if paused {
					env.RegisterDelayedCallback(func() { env.UpdateWorkflow(contract.UpdatePause, "p", pause) }, 40*time.Minute)
				}
				env.RegisterDelayedCallback(func() { env.UpdateWorkflow(c.update, "u", got, sent(c.input)) }, 45*time.Minute)
				// The signal of the same name has no answer; what is refused leaves a warning.
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(c.update, sent(c.input)) }, 46*time.Minute)
				env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
				if err := env.GetWorkflowError(); err != nil {
					t.Fatal(err)
				}
				controls := w.controls
				if paused && len(controls) > 0 && controls[0].Pause {
					controls = controls[1:]
				}
				if c.refused != "" {
					if got.rejected == nil || !strings.Contains(got.rejected.Error(), c.refused) {
						t.Errorf("answer %v, want a refusal with %q", got.rejected, c.refused)
					}
					if len(controls) != 0 || len(w.warnings) == 0 {
						t.Errorf("the loop got %+v, warnings %q; want nothing, and a warning for the signal", controls, w.warnings)
					}
					return
				}
				if got.rejected != nil || got.failed != nil || !got.completed {
					t.Errorf("answer %+v, want done", got)
				}
				if want := []contract.Control{c.want, c.want}; asJSON(t, controls) != asJSON(t, want) {
					t.Errorf("the loop got %s, want %s", asJSON(t, controls), asJSON(t, want))
				}
			})
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What comes before the loop is open is what the loop starts with.
func TestTrainRun_settingsBeforeTheLoop(t *testing.T) {
	t.Parallel()
	w := &runWorld{}
	env := newRunEnv(t, w)
	var got contract.LoopInput
	env.OnWorkflow(contract.PrepareDataset, mockAny, mockAny).Return(func(ctx workflow.Context, _ contract.RunSpec) (contract.DatasetResult, error) {
		return contract.DatasetResult{}, workflow.Sleep(ctx, time.Hour)
	})
	env.OnWorkflow(contract.TrainLoop, mockAny, mockAny).Return(func(_ workflow.Context, in contract.LoopInput) (contract.LoopOutput, error) {
		got = in
		return contract.LoopOutput{}, nil
	})
	var answers []*answer
	for i, u := range []struct{ name, input string }{
		{contract.UpdateRate, `{"learning_rate": 1e-5, "from_step": 3}`},
		{contract.UpdateRate, `{"learning_rate": 1e-4}`}, // from the first step on: it replaces the other
		{contract.UpdateThreshold, `{"threshold": 6}`},
		{contract.UpdatePrefill, `{"prefill": 5}`},
	} {
		a := &answer{}
		answers = append(answers, a)
		env.RegisterDelayedCallback(func() { env.UpdateWorkflow(u.name, fmt.Sprint(i), a, sent(u.input)) }, time.Duration(i+1)*time.Minute)
	}
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if !a.completed || a.failed != nil {
			t.Errorf("update %d: %+v", i, a)
		}
	}
	want := contract.Settings{Rates: []contract.Rate{{From: 1, LearningRate: 1e-4}}, Threshold: 6, Prefill: number(5)}
	if asJSON(t, got.State.Settings) != asJSON(t, want) {
		t.Errorf("the loop starts with %s, want %s", asJSON(t, got.State.Settings), asJSON(t, want))
	}
}

// A signal that has to wait until the loop can be told holds up the others, and breaks nothing: each has its effect or its warning.
func TestTrainRun_signalsThatHaveToWait(t *testing.T) {
	t.Parallel()
	w := &runWorld{}
	env := newRunEnv(t, w)
	env.OnWorkflow(contract.TrainLoop, mockAny, mockAny).After(time.Hour).Return(contract.LoopOutput{}, nil) // starts and ends in an hour
	for i, f := range []func(){
		func() { env.SignalWorkflow(contract.UpdatePause, nil) },
		func() { env.SignalWorkflow(contract.UpdateRate, sent(`{"learning_rate": 0.5}`)) },
		func() { env.SignalWorkflow(contract.UpdateResume, nil) },
	} {
		env.RegisterDelayedCallback(f, time.Duration(i+1)*time.Minute)
	}
	waiting := 0
	env.RegisterDelayedCallback(func() { waiting = len(w.warnings) }, 30*time.Minute)
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if waiting != 0 || len(w.warnings) != 3 {
		t.Errorf("%d warnings while they wait; at the end %q, want one for each: the loop cannot be told any more", waiting, w.warnings)
	}
}

// chain runs the loop and every run that it continues as; each gets the callbacks of prepare.
func chain(t *testing.T, w *world, s contract.RunSpec, prepare func(env *testsuite.TestWorkflowEnvironment, st contract.LoopState)) {
	t.Helper()
	in := contract.LoopInput{Spec: s}
	for {
		env := newLoopEnv(t, w, finish)
		for _, g := range in.State.Open {
			if !g.Done && g.Failed == "" {
				env.RegisterDelayedCallback(func() {
					env.SignalWorkflow(contract.SignalGroupDone, contract.GroupDone{N: g.N, Tag: g.Tag, Tokens: 1})
				}, time.Duration(g.N)*time.Millisecond)
			}
		}
		prepare(env, in.State)
		env.ExecuteWorkflow(contract.TrainLoop, in)
		err := env.GetWorkflowError()
		var can *workflow.ContinueAsNewError
		if !errors.As(err, &can) {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		in = contract.LoopInput{}
		if err := json.Unmarshal(can.Input.Payloads[0].Data, &in); err != nil {
			t.Fatal(err)
		}
	}
}

// A learning rate set at any moment holds from its step on, or from the first that is not sealed, and every sealed batch has the one in
// force. Nothing is lost when the loop continues as new.
func TestSettings_theSealedBatchHasTheRateInForce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := spec([]string{"sync", "async"}[r.IntN(2)])
		s.Steps, s.ContinueEvery = 8, 1+r.IntN(8)
		w := &world{}
		orders := map[int]contract.Rate{} // sent while the step of the key is trained
		for step := 1; step < 8; step++ {
			if r.IntN(2) == 0 {
				orders[step] = contract.Rate{From: []int{0, step, step + 1, step + 3}[r.IntN(4)], LearningRate: float64(step) / 100}
			}
		}
		want := make([]float64, s.Steps+1)
		for _, step := range slices.Sorted(maps.Keys(orders)) {
			for at := max(orders[step].From, step+1); at <= s.Steps; at++ {
				want[at] = orders[step].LearningRate
			}
		}
		chain(t, w, s, func(env *testsuite.TestWorkflowEnvironment, _ contract.LoopState) {
			w.during = func(step int) {
				if o, ok := orders[step]; ok {
					env.SignalWorkflow(contract.SignalControl, contract.Control{Rate: o})
				}
			}
		})
		for _, q := range w.seals {
			if q.LearningRate != want[q.Step] {
				t.Errorf("seed %d: orders %v: step %d is sealed with rate %g, want %g", seed, orders, q.Step, q.LearningRate, want[q.Step])
			}
		}
		told := 0
		for _, e := range w.events {
			if e.Kind == "setting" {
				told++
			}
		}
		if told != len(orders) {
			t.Errorf("seed %d: %d events for %d changes", seed, told, len(orders))
		}
	}
}

// Threshold and prefill may change at any moment under any policy: no group beyond the threshold of its time is trained, the books
// balance, and the loop ends.
func TestSettings_thresholdAndPrefillAtAnyMoment(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{contract.PolicyDrop, contract.PolicyWait, contract.PolicyCancelEarly} {
		for seed := range uint64(12) {
			c := newCourse(policy, seed+1000)
			c.failures = 0
			c.spec.Steps = 10
			c.spec.ContinueEvery = 100
			r := rand.New(rand.NewPCG(seed, 9))
			w := &world{}
			threshold := make([]int, c.spec.Steps+1) // of each step
			for i := range threshold {
				threshold[i] = c.spec.Threshold
			}
			c.spec.Prefill = min(c.spec.Prefill, 1)
			changed := map[int]int{1 + r.IntN(4): 2 + r.IntN(3), 5 + r.IntN(4): 2 + r.IntN(3)}
			for _, step := range slices.Sorted(maps.Keys(changed)) {
				for i := step + 1; i < len(threshold); i++ {
					threshold[i] = changed[step]
				}
			}
			c.prepare = func(env *testsuite.TestWorkflowEnvironment) {
				w.during = func(step int) {
					if n, ok := changed[step]; ok {
						p := r.IntN(n)
						env.SignalWorkflow(contract.SignalControl, contract.Control{Threshold: n, Prefill: &p})
					}
				}
			}
			c.playIn(t, w)
			balance(t, w)
			for _, q := range w.seals {
				for _, g := range q.Groups {
					if q.Step-g.Tag > threshold[q.Step]-1 {
						t.Errorf("%s, seed %d: step %d trains group %d with tag %d, the threshold is %d then", policy, seed, q.Step, g.N, g.Tag, threshold[q.Step])
					}
				}
			}
			if len(w.updates) != c.spec.Steps {
				t.Errorf("%s, seed %d: steps %v", policy, seed, w.updates)
			}
		}
	}
}

// The prefill is the number of batches in flight beside the one that is collected, from the next step on.
func TestSettings_prefillBoundsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to int }{"more": {1, 3}, "fewer": {3, 1}, "none": {2, 0}} {
		w := &world{}
		s := spec("async")
		s.Policy = contract.PolicyWait // drops would blur the count
		s.Prefill, s.Steps = c.from, 12
		submitted := map[int]int{} // by tag
		env := newLoopEnv(t, w, finish)
		w.during = func(step int) {
			if step == 4 {
				env.SignalWorkflow(contract.SignalControl, contract.Control{Prefill: &c.to})
			}
		}
		env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
		if err := env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		for _, q := range w.seals {
			for _, g := range q.Ledger.Submitted {
				submitted[g.Tag]++
			}
		}
		open := func(step int) int { // sent out up to the step, not trained before it
			n := 0
			for tag := 1; tag <= step; tag++ {
				n += submitted[tag]
			}
			return n - (step-1)*s.BatchProblems
		}
		if open(4) != (c.from+1)*s.BatchProblems || open(8) != (c.to+1)*s.BatchProblems {
			t.Errorf("%s: %d groups in flight in step 4 and %d in step 8, want %d and %d", name, open(4), open(8), (c.from+1)*s.BatchProblems, (c.to+1)*s.BatchProblems)
		}
		balance(t, w)
	}
}

// Input that can be read and that nobody can have meant is refused with what is wrong and what is wanted: as an update, and as a signal.
func TestTrainRun_doubtfulMessages(t *testing.T) {
	t.Parallel()
	type doubtful struct{ name, update, input, says string }
	var all []doubtful
	for update, keys := range map[string][]string{
		contract.UpdateStop:      {`"step": 4`},
		contract.UpdateRate:      {`"learning_rate": 1e-5`, `"from_step": 4`},
		contract.UpdateThreshold: {`"threshold": 3`},
		contract.UpdatePrefill:   {`"prefill": 1`},
		contract.UpdateRollback:  {`"step": 1`},
	} {
		whole := strings.Join(keys, ", ")
		for i, pair := range keys {
			name, value, _ := strings.Cut(pair, ": ")
			with := func(other string) string {
				changed := slices.Clone(keys)
				changed[i] = other
				return "{" + strings.Join(changed, ", ") + "}"
			}
			title := `"` + strings.ToUpper(name[1:2]) + name[2:]
			all = append(all,
				doubtful{"in capitals", update, with(strings.ToUpper(name) + ": " + value), "is spelt " + name},
				doubtful{"in title case", update, with(title + ": " + value), "is spelt " + name},
				doubtful{"twice", update, "{" + whole + ", " + pair + "}", name + " is there twice"},
				doubtful{"twice in two cases", update, "{" + whole + ", " + title + ": " + value + "}", "is spelt " + name},
				doubtful{"null", update, with(name + ": null"), ""}, // some refuse it as missing
			)
		}
	}
	for _, small := range []string{"1e-320", "5e-324", "1e-40", "1.17e-38"} {
		all = append(all, doubtful{"too small " + small, contract.UpdateRate, `{"learning_rate": ` + small + `}`, "learning_rate must be at least 1.18e-38"})
	}
	for _, c := range all {
		t.Run(c.update+" "+c.name+" "+c.input, func(t *testing.T) {
			t.Parallel()
			w := &runWorld{}
			env := newRunEnv(t, w)
			got := &answer{}
			env.RegisterDelayedCallback(func() { env.UpdateWorkflow(c.update, "u", got, sent(c.input)) }, 45*time.Minute)
			if c.update != contract.UpdateRollback {
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(c.update, sent(c.input)) }, 46*time.Minute)
			}
			env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			if got.rejected == nil || !strings.Contains(got.rejected.Error(), c.says) || !strings.Contains(got.rejected.Error(), c.update) {
				t.Errorf("answer %v, want a refusal that names %s and says %q", got.rejected, c.update, c.says)
			}
			if len(w.controls) != 0 {
				t.Errorf("the loop got %+v, want nothing", w.controls)
			}
			if c.update != contract.UpdateRollback && (len(w.warnings) != 1 || !strings.Contains(w.warnings[0], c.says)) {
				t.Errorf("warnings %q, want one with %q", w.warnings, c.says)
			}
		})
	}
}

// The input of every command, as an update and as a signal: an unknown key is refused with those that are known, a value of another type with the key, what
// was sent and what is wanted, and what is no object with what it is. The texts are those of the messages, not of the language they are read with.
func TestTrainRun_inputOfAnotherForm(t *testing.T) {
	t.Parallel()
	type message struct {
		update, input string
		says          []string
	}
	var all []message
	forms := map[string]string{ // of a value, and how it is told
		`"four"`: `the text "four"`, `[4]`: "a list", `{"n": 4}`: "an object", `true`: "true", `4.5`: "4.5", `1e400`: "1e400", `99999999999999999999`: "99999999999999999999",
		`"` + strings.Repeat("x", 1000) + `"`: `the text "` + strings.Repeat("x", 80) + `"...`, strings.Repeat("9", 1000): "a number",
	}
	for update, keys := range map[string][]string{
		contract.UpdatePause:     {},
		contract.UpdateResume:    {},
		contract.UpdateStop:      {"step"},
		contract.UpdateRate:      {"learning_rate", "from_step"},
		contract.UpdateThreshold: {"threshold"},
		contract.UpdatePrefill:   {"prefill"},
		contract.UpdateRollback:  {"step"},
	} {
		known := "(known: " + strings.Join(keys, ", ") + ")"
		if len(keys) == 0 {
			known = "(none is)"
		}
		all = append(all,
			message{update, `{"reason": "lunch"}`, []string{`"reason" is not known ` + known}},
			message{update, `{"b": null, "a": 1}`, []string{`"b", "a" are not known ` + known}},
			message{update, `{"1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7}`, []string{`"5" and 2 more are not known ` + known}},
			message{update, `{"` + strings.Repeat("k", 1000) + `": 1}`, []string{`"` + strings.Repeat("k", 80) + `"... is not known`}},
			message{update, `4`, []string{"the input is a number"}},
			message{update, `"4"`, []string{"the input is a string"}},
			message{update, `[{}]`, []string{"the input is a list"}},
			message{update, `true`, []string{"the input is a boolean"}},
		)
		for i, key := range keys {
			for value, told := range forms {
				want := "a whole number"
				if key == "learning_rate" {
					want = "a number"
					if told == "4.5" || told == "99999999999999999999" {
						continue // it is one
					}
				}
				all = append(all,
					message{update, fmt.Sprintf(`{%q: %s}`, key, value), []string{fmt.Sprintf("%q is %s, want %s", key, told, want)}},
					message{update, fmt.Sprintf(`{%q: %s, "x": 1}`, key, value), []string{fmt.Sprintf("%q is %s, want %s", key, told, want), `"x" is not known ` + known}})
			}
			if i > 0 {
				all = append(all, message{update, fmt.Sprintf(`{%q: "a", %q: "b"}`, keys[0], key), []string{fmt.Sprintf(`%q is the text "a"`, keys[0]), fmt.Sprintf(`%q is the text "b"`, key)}})
			}
		}
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%s %.60s", c.update, c.input), func(t *testing.T) {
			t.Parallel()
			w := &runWorld{}
			env := newRunEnv(t, w)
			got := &answer{}
			env.RegisterDelayedCallback(func() { env.UpdateWorkflow(c.update, "u", got, sent(c.input)) }, 45*time.Minute)
			signal := c.update != contract.UpdateRollback
			if signal {
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(c.update, sent(c.input)) }, 46*time.Minute)
			}
			env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			if got.rejected == nil || len(w.controls) != 0 {
				t.Fatalf("answer %v, the loop got %+v; want a refusal, and nothing for the loop", got.rejected, w.controls)
			}
			texts := []string{got.rejected.Error()}
			if signal {
				if len(w.warnings) != 1 {
					t.Fatalf("warnings %q, want one", w.warnings)
				}
				texts = append(texts, w.warnings[0])
			}
			for _, text := range texts {
				for _, want := range append(c.says, c.update+": ", "; want ") {
					if !strings.Contains(text, want) {
						t.Errorf("%q lacks %q", text, want)
					}
				}
				for _, raw := range []string{"json", "unmarshal", "Go ", "contract.", "payload", "Request", "int", "float"} {
					if strings.Contains(text, raw) {
						t.Errorf("%q holds %q", text, raw)
					}
				}
				if len(text) > 500 {
					t.Errorf("a text of %d bytes", len(text))
				}
			}
		})
	}
}

// Every command takes no input as before: nothing at all, null and an empty object are what they were; a second input is refused.
func TestTrainRun_inputThatSaysNothing(t *testing.T) {
	t.Parallel()
	null := []contract.Control{{Pause: true}, {Resume: true}, {Pause: true}, {Resume: true}, {Pause: true}, {Resume: true}, {Pause: true}, {Resume: true}}
	w := &runWorld{}
	env := newRunEnv(t, w)
	var answers []*answer
	at := 40 * time.Minute
	for _, args := range [][]any{nil, {nil}, {sent(`null`)}, {sent(`{}`)}} {
		for _, name := range []string{contract.UpdatePause, contract.UpdateResume} {
			a := &answer{}
			answers = append(answers, a)
			env.RegisterDelayedCallback(func() { env.UpdateWorkflow(name, fmt.Sprint(at, name, args), a, args...) }, at)
			at += time.Second
		}
	}
	refused := map[string]*answer{}
	for name, input := range map[string]string{
		contract.UpdatePause: `{}`, contract.UpdateResume: `{}`, contract.UpdateStop: `{"step": 5}`, contract.UpdateRate: `{"learning_rate": 1e-5}`,
		contract.UpdateThreshold: `{"threshold": 3}`, contract.UpdatePrefill: `{"prefill": 1}`, contract.UpdateRollback: `{"step": 1}`,
	} {
		a := &answer{}
		refused[name] = a
		env.RegisterDelayedCallback(func() { env.UpdateWorkflow(name, "two of "+name, a, sent(input), sent(`{}`)) }, at)
	}
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.rejected != nil || a.failed != nil || !a.completed {
			t.Errorf("update %d: %+v, want done", i, a)
		}
	}
	if asJSON(t, w.controls) != asJSON(t, null) {
		t.Errorf("the loop got %s", asJSON(t, w.controls))
	}
	for name, a := range refused {
		if a.rejected == nil || !strings.Contains(a.rejected.Error(), name+": there is more than one input; want ") {
			t.Errorf("two inputs of %s: %+v", name, a.rejected)
		}
	}
}
