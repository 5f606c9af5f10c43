package transcript_test

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/transcript"
	"github.com/steadyrl/steady/internal/transcript/transcripttest"
)

func open(t *testing.T) (*transcript.Run, *transcripttest.Run) {
	t.Helper()
	r := transcripttest.Write(t, t.TempDir())
	run, err := transcript.Open(t.Context(), r.Store, r.Layout)
	if err != nil {
		t.Fatal(err)
	}
	return run, r
}

func collect(t *testing.T, seq iter.Seq2[*transcript.Transcript, error]) []*transcript.Transcript {
	t.Helper()
	var out []*transcript.Transcript
	for one, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

// summary is a transcript in one line.
func summary(x *transcript.Transcript) string {
	s := x.ProblemID + "/" + string(rune('0'+x.Sample)) + " " + x.Fate + x.Validation + " end=" + x.End
	if x.Verdict != nil {
		s += " " + x.Verdict.Kind
	}
	if x.Advantage != nil {
		s += " advantage"
	}
	for _, g := range x.Segments {
		s += " " + g.Origin
	}
	return s
}

func TestRun_findsTrajectoriesInEveryState(t *testing.T) {
	t.Parallel()
	run, _ := open(t)
	for _, tt := range []struct {
		name string
		seq  iter.Seq2[*transcript.Transcript, error]
		want []string
	}{
		{"trained", run.Group(t.Context(), 0), []string{
			"p4/0 trained in step 1 end=stop accepted advantage prompt model", "p4/1 trained in step 1 end=stop accepted advantage prompt model answer model",
		}},
		{"dropped, not judged", run.Group(t.Context(), 1), []string{"p5/0 dropped: stale end=stop prompt model", "p5/1 dropped: stale end=stop prompt model"}},
		{"in progress", run.Group(t.Context(), 2), []string{"p5/0 open end=stop prompt model", "p5/1 open end= prompt model"}},
		{"validation", run.Validation(t.Context(), "000000"), []string{"p0/0 000000 end=stop accepted prompt model", "p1/0 000000 end=stop accepted prompt model answer model"}},
	} {
		var got []string
		for _, x := range collect(t, tt.seq) {
			got = append(got, summary(x))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	for name, seq := range map[string]iter.Seq2[*transcript.Transcript, error]{
		"nothing kept": run.Group(t.Context(), 3), "no such group": run.Group(t.Context(), 4), "no such validation": run.Validation(t.Context(), "000009"),
	} {
		n := 0
		for x, err := range seq {
			if n++; x != nil || !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
				t.Errorf("%s: %v, %v, want NotFound with a hint", name, x, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d results, want one error", name, n)
		}
	}
	if d := cmp.Diff([]int{0, 1, 2, 3}, run.Groups()); d != "" {
		t.Errorf("groups:\n%s", d)
	}
	if got, err := run.Step(t.Context(), 1); err != nil || !cmp.Equal(got, []int{0}) {
		t.Errorf("step 1: %v, %v", got, err)
	}
	if _, err := run.Step(t.Context(), 2); !fault.Is(err, fault.NotFound) {
		t.Errorf("step 2: %v, want NotFound", err)
	}
}

// A damaged file is reported, never shown in part or taken for one that is not there.
func TestRun_damageIsCorrupt(t *testing.T) {
	t.Parallel()
	_, r := open(t)
	for _, name := range []string{r.Trajectories("groups/000000-t1-p4-s0"), r.Trajectories("groups/000001-t1-p5-s0"), r.Sample("groups/000002-t2-p5-s1", 5, 0)} {
		data, _, err := r.Store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Store.Replace(t.Context(), name, data[:len(data)/2]); err != nil {
			t.Fatal(err)
		}
	}
	run, err := transcript.Open(t.Context(), r.Store, r.Layout)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		for x, err := range run.Group(t.Context(), n) {
			if x != nil || !fault.Is(err, fault.Corrupt) {
				t.Errorf("group %d: %v, %v, want Corrupt", n, x, err)
			}
		}
	}
}

func TestTranscript_segmentsAreTheTrajectory(t *testing.T) {
	t.Parallel()
	run, r := open(t)
	for i, x := range collect(t, run.Group(t.Context(), 0)) {
		want := r.Plain(4, 0)
		if i == 1 {
			want = r.WithTool(4, 1)
		}
		at, text, sampled := 0, "", 0
		for _, g := range x.Segments {
			if g.Begin != at || g.End <= g.Begin {
				t.Errorf("segment %+v begins at %d, the one before ends at %d", g, g.Begin, at)
			}
			at = g.End
			text += g.Text
			if g.Origin == transcript.Model {
				sampled += g.End - g.Begin
			}
			for k := g.Begin; k < g.End; k++ {
				if want.Mask()[k] != (g.Origin == transcript.Model) {
					t.Errorf("token %d of %q has mask %v", k, g.Origin, want.Mask()[k])
				}
			}
		}
		if at != want.Len() || sampled != want.Sampled() || text != r.Tokenizer.Decode(want.IDs(), false) {
			t.Errorf("sample %d: segments end at %d of %d, %d sampled of %d, text %q", i, at, want.Len(), sampled, want.Sampled(), text)
		}
		tokens := x.WithTokens().Tokens
		if !cmp.Equal(tokens.IDs, want.IDs()) || !cmp.Equal(tokens.Mask, want.Mask()) || !cmp.Equal(tokens.Versions, want.Versions()) || !cmp.Equal(tokens.LogProbs, want.LogProbs()) {
			t.Errorf("sample %d: tokens %+v", i, tokens)
		}
	}
}

func TestTranscript_textShowsAllAndHidesNothing(t *testing.T) {
	t.Parallel()
	run, _ := open(t)
	var text strings.Builder
	if err := collect(t, run.Group(t.Context(), 0))[1].Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"group      0, sample 1; submitted in step 1; trained in step 1", "problem    p4, number 4 of split train", "end        stop",
		"verdict    accepted, 1 of 2 tests passed, reward 0.500", "advantage  -0.250", "versions   1 to 2",
		"call: ran, ok in 0.500 s, further calls ignored: 1, characters cut from the middle of the output: 7 ===",
		"=== answer to turn 1, not trained, ", "=== turn 2, sampled, ", `8\x1b[2J\u202e<script>`, "Print a number & <b>stop</b>.",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for _, c := range text.String() {
		if unicode.IsControl(c) && c != '\n' && c != '\t' || unicode.Is(unicode.Bidi_Control, c) {
			t.Errorf("a terminal would act on %q", c)
		}
	}
	text.Reset()
	if err := collect(t, run.Group(t.Context(), 2))[1].Text(&text); err != nil || !strings.Contains(text.String(), "none: it is not finished") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestTranscript_htmlEscapesWhatTheModelSaid(t *testing.T) {
	t.Parallel()
	run, _ := open(t)
	var page strings.Builder
	if err := collect(t, run.Group(t.Context(), 0))[1].HTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<!doctype html>", "&lt;script&gt;", `\x1b[2J`, `<section class="answer">`, "<dt>advantage</dt><dd>-0.250</dd>", "reward 0.500", "&lt;b&gt;stop"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	for _, bad := range []string{"<script", "\x1b", "\u202e", "<b>stop", "http:", "https:"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("%q in\n%s", bad, page.String())
		}
	}
}

func TestTranscript_jsonIsOneLineThatReadsBack(t *testing.T) {
	t.Parallel()
	run, _ := open(t)
	x := collect(t, run.Group(t.Context(), 0))[1].WithTokens()
	var line strings.Builder
	if err := x.JSON(&line); err != nil {
		t.Fatal(err)
	}
	var back transcript.Transcript
	if err := json.Unmarshal([]byte(line.String()), &back); err != nil || strings.Count(line.String(), "\n") != 1 || !strings.HasSuffix(line.String(), "\n") {
		t.Fatalf("%v: %q", err, line.String())
	}
	if *back.Group != 0 || back.Advantage == nil || *back.Advantage != -0.25 || !cmp.Equal(back.Segments, x.Segments) || !cmp.Equal(back.Tokens, x.Tokens) || !cmp.Equal(back.Verdict, x.Verdict) {
		t.Errorf("%+v", back)
	}
	broken := errors.New("broken pipe")
	for name, write := range map[string]func() error{
		"json": func() error { return x.JSON(failing{broken}) }, "text": func() error { return x.Text(failing{broken}) }, "html": func() error { return x.HTML(failing{broken}) },
	} {
		if err := write(); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
