package config

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/internal/fault"
)

//go:embed studies/*.yaml
var studyFiles embed.FS

// Study is a comparison of configurations: every arm is run with every seed. Its JSON is the input of the workflow Study.
type Study struct {
	Name        string            `json:"name" doc:"Name of the study and first part of the names of its runs."`
	About       string            `json:"about" doc:"One line for people."`
	Recipe      string            `json:"recipe" doc:"Embedded recipe that all arms build on."`
	Set         []string          `json:"set" doc:"Assignments key=value that all arms share."`
	Arms        []StudyArm        `json:"arms" doc:"What is compared."`
	Seeds       []uint64          `json:"seeds" doc:"Values of run.seed; every arm is run with each of them."`
	Metric      string            `json:"metric" doc:"Number of the last validation that is compared: acc (share of dev problems solved) or pass_rate."`
	Parallel    int               `json:"parallel" doc:"Runs at once, at most. More than one needs as many trainers."`
	Comparisons []StudyComparison `json:"comparisons" doc:"Differences that are reported, paired by seed and dev problem."`
	Collapse    StudyCollapse     `json:"collapse" doc:"When a run counts as collapsed."`
	Quick       StudyQuick        `json:"quick" doc:"The quick form."`
}

// StudyArm is one of the configurations that are compared.
type StudyArm struct {
	Name  string   `json:"name" doc:"Name of the arm; part of the names of its runs."`
	Label string   `json:"label" doc:"What tables and pictures call it; empty for its name. Arms with one label have one colour."`
	Panel string   `json:"panel" doc:"Part of the picture that the arm is drawn in; arms with the same text share one."`
	Set   []string `json:"set" doc:"Assignments key=value of this arm."`
}

// StudyComparison is the difference of two arms.
type StudyComparison struct {
	A    string `json:"a" doc:"Arm whose result is compared."`
	B    string `json:"b" doc:"Arm that it is compared with; the difference is a minus b."`
	Gate bool   `json:"gate" doc:"The study passes only if the whole 95 % interval of the difference lies above 0."`
}

// StudyCollapse says when a run counts as collapsed.
type StudyCollapse struct {
	Share    float64 `json:"share" doc:"The metric falls below this share of its best value so far, and stays below to the end; 0 turns it off."`
	GradNorm float64 `json:"grad_norm" doc:"The gradient norm is more than this many times its median over the first quarter of the steps, in three steps running; 0 turns it off."`
	Tokens   float64 `json:"tokens" doc:"The mean response is no longer than this many tokens, and stays so to the end; 0 turns it off."`
	NoAnswer float64 `json:"no_answer" doc:"More than this share of the responses hold no program that can be judged, to the end, and not so at the beginning; 0 turns it off."`
}

// StudyQuick is a smaller form of a study, run with --quick. What is empty is as in the whole study.
type StudyQuick struct {
	Set   []string `json:"set" doc:"Assignments that all arms share, after those of the study."`
	Arms  []string `json:"arms" doc:"Arms that take part."`
	Seeds []uint64 `json:"seeds" doc:"Seeds."`
}

// StudyRun is a run of a study: its name, and the input of TrainRun.
type StudyRun struct {
	Arm    string
	Seed   uint64
	Name   string
	Config *Config
}

// Bounds of a study.
const (
	MostStudyRuns  = 200 // one workflow starts them all, and its history is bounded
	mostStudyWords = 12 << 10
)

// Metrics that a study can compare.
const (
	MetricAcc      = "acc"
	MetricPassRate = "pass_rate"
)

// DefaultStudy returns the values of keys that a study need not give.
func DefaultStudy() *Study {
	return &Study{Metric: MetricAcc, Parallel: 1, Collapse: StudyCollapse{Share: 0.5, GradNorm: 20, Tokens: 1, NoAnswer: 0.5}}
}

// Studies lists the embedded studies.
func Studies() []Recipe {
	entries, err := studyFiles.ReadDir("studies")
	if err != nil {
		panic(err) // the folder is embedded
	}
	var list []Recipe
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".yaml")
		s, err := LoadStudy(name)
		if err != nil {
			panic("config: study " + name + ": " + err.Error()) // TestStudies_allLoad guards it
		}
		list = append(list, Recipe{s.Name, s.About})
	}
	return list
}

// StudyText returns the text of an embedded study, as it was written, or of a file.
//
// Errors: NotFound (no such study or file), Invalid (a file that cannot be read).
func StudyText(name string) (source string, text []byte, err error) {
	if text, err = studyFiles.ReadFile(path.Join("studies", name+".yaml")); err == nil {
		return "study " + name, text, nil
	}
	text, err = os.ReadFile(name)
	if err == nil {
		return "file " + name, text, nil
	}
	entries, _ := studyFiles.ReadDir("studies") //nolint:errcheck // only for the hint
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	kind := fault.Invalid
	if os.IsNotExist(err) {
		kind = fault.NotFound
	}
	return "", nil, fault.New(kind, "config.StudyText", "%q is neither an embedded study nor a file that can be read: %w", name, err).
		WithHint("name one of %s, or a YAML file; `steady study show %s` prints one to start from", strings.Join(names, ", "), names[0])
}

// LoadStudy reads an embedded study or a file. It does not Validate. Errors: those of StudyText; Invalid with every problem of the text.
func LoadStudy(name string) (*Study, error) {
	source, text, err := StudyText(name)
	if err != nil {
		return nil, err
	}
	return decodeStudy(&layer{name: source, lines: true, sources: Sources{}}, text)
}

// DecodeStudy reads the input of the workflow Study, as JSON. Errors: Invalid with every problem.
func DecodeStudy(data []byte) (*Study, error) {
	l := &layer{name: "input", sources: Sources{}}
	if !json.Valid(data) {
		return nil, fault.New(fault.Invalid, "config.DecodeStudy", "not JSON").
			WithHint("`steady study show study-staleness --json` prints the input of a study")
	}
	return decodeStudy(l, data)
}

func decodeStudy(l *layer, text []byte) (*Study, error) {
	s := DefaultStudy()
	var node *yaml.Node
	if node = l.parse(string(text)); node == nil && len(l.problems) == 0 {
		l.problem(nil, "", "a study is empty")
	}
	if node != nil {
		if node.Kind != yaml.MappingNode {
			l.problem(node, "", "want the keys of a study, got %s", kindOf(node))
		} else {
			l.apply(node, reflect.ValueOf(s).Elem(), "")
		}
	}
	if len(l.problems) > 0 {
		return nil, fault.New(fault.Invalid, "config.Study", "%s", strings.Join(l.problems, "\n")).
			WithHint("docs/studies.md lists the keys of a study")
	}
	return s, nil
}

// JSON returns s as indented JSON: the input of the workflow Study.
func (s *Study) JSON() ([]byte, error) {
	c := *s
	c.Set, c.Seeds, c.Comparisons = list(c.Set), list(c.Seeds), list(c.Comparisons)
	c.Quick = StudyQuick{Set: list(c.Quick.Set), Arms: list(c.Quick.Arms), Seeds: list(c.Quick.Seeds)}
	c.Arms = list(c.Arms)
	for i := range c.Arms {
		c.Arms[i].Set = list(c.Arms[i].Set)
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Invalid, "config.Study", "%w", err)
	}
	return append(data, '\n'), nil
}

// list is a copy that is written as a list even if it is empty.
func list[T any](x []T) []T { return append([]T{}, x...) }

// QuickForm returns the quick form of s, a study of its own with the name NAME-quick. Errors: Invalid (s has none).
func (s *Study) QuickForm() (*Study, error) {
	q := s.Quick
	if len(q.Set) == 0 && len(q.Arms) == 0 && len(q.Seeds) == 0 {
		return nil, fault.New(fault.Invalid, "config.Study", "the study %s has no quick form", s.Name).WithHint("run it without --quick, or give it a section quick")
	}
	c := *s
	c.Name += "-quick"
	c.Set = append(slices.Clone(s.Set), q.Set...)
	c.Quick = StudyQuick{}
	if len(q.Seeds) > 0 {
		c.Seeds = slices.Clone(q.Seeds)
	}
	if len(q.Arms) == 0 {
		return &c, nil
	}
	for _, name := range q.Arms {
		if _, ok := s.arm(name); !ok {
			return nil, fault.New(fault.Invalid, "config.Study", "quick.arms: the study %s has no arm %q", s.Name, name).WithHint("name arms of the study")
		}
	}
	c.Arms = slices.DeleteFunc(slices.Clone(s.Arms), func(a StudyArm) bool { return !slices.Contains(q.Arms, a.Name) })
	c.Comparisons = slices.DeleteFunc(slices.Clone(s.Comparisons), func(x StudyComparison) bool {
		return !slices.Contains(q.Arms, x.A) || !slices.Contains(q.Arms, x.B)
	})
	return &c, nil
}

func (s *Study) arm(name string) (StudyArm, bool) {
	i := slices.IndexFunc(s.Arms, func(a StudyArm) bool { return a.Name == name })
	if i < 0 {
		return StudyArm{}, false
	}
	return s.Arms[i], true
}

// RunName is the name of the run of an arm and a seed, its workflow id. attempt 1 is the first; a run that ended without a result is
// made again under the next name.
func (s *Study) RunName(arm string, seed uint64, attempt int) string {
	name := fmt.Sprintf("%s.%s.s%d", s.Name, arm, seed)
	if attempt > 1 {
		name += fmt.Sprintf("-%d", attempt)
	}
	return name
}

// Runs returns the runs of the study, seed by seed so that an early look is paired, with their configurations. Errors: Invalid with
// every problem of every arm, those of their configurations included.
func (s *Study) Runs() ([]StudyRun, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var runs []StudyRun
	var problems []string
	for i, seed := range s.Seeds {
		for _, a := range s.Arms {
			sets := append(append(slices.Clone(s.Set), a.Set...), fmt.Sprintf("run.seed=%d", seed))
			c, sources, err := Load(Options{Recipe: s.Recipe, Sets: sets})
			if err == nil {
				err = c.Validate(sources)
			}
			if err != nil {
				if i == 0 { // the other seeds have the same problems
					for line := range strings.Lines(inner(err)) {
						problems = append(problems, fmt.Sprintf("arm %s: %s", a.Name, strings.TrimRight(line, "\n")))
					}
				}
				continue
			}
			runs = append(runs, StudyRun{Arm: a.Name, Seed: seed, Name: s.RunName(a.Name, seed, 1), Config: c})
		}
	}
	if len(problems) == 0 {
		problems = s.matched(runs)
	}
	if len(problems) > 0 {
		return nil, invalidStudy(problems)
	}
	return runs, nil
}

// inner is the text of a fault without its operation.
func inner(err error) string {
	if text, ok := strings.CutPrefix(err.Error(), "config.Load: "); ok {
		return text
	}
	return strings.TrimPrefix(err.Error(), "config.Validate: ")
}

func invalidStudy(problems []string) error {
	return fault.New(fault.Invalid, "config.Study", "%s", strings.Join(problems, "\n")).
		WithHint("change the study; docs/studies.md lists its keys, `steady study show NAME` prints a bundled one")
}

// Validate reports every rule that s and the configurations of its arms break, as one error of kind Invalid.
func (s *Study) Validate() error {
	_, err := s.Runs()
	return err
}

// check reports the rules that need no configuration.
func (s *Study) check() error {
	v := &checker{}
	v.want(ValidRunName(s.Name), "name", "must be a name of letters, digits, '.', '_' and '-'", s.Name)
	v.want(len(s.Arms) >= 1, "arms", "must list at least one arm", len(s.Arms))
	v.want(len(s.Seeds) >= 1, "seeds", "must list at least one seed", len(s.Seeds))
	v.oneOf("metric", s.Metric, MetricAcc, MetricPassRate)
	atLeast(v, "parallel", s.Parallel, 1)
	v.want(len(s.Arms)*len(s.Seeds) <= MostStudyRuns, "arms", fmt.Sprintf("times seeds must be at most %d runs", MostStudyRuns), len(s.Arms)*len(s.Seeds))
	s.checkCollapse(v)
	s.checkAssignments(v, "set", s.Set)
	s.checkAssignments(v, "quick.set", s.Quick.Set)
	seen := map[string]bool{}
	for i, a := range s.Arms {
		key := fmt.Sprintf("arms[%d]", i)
		v.want(ValidRunName(a.Name), key+".name", "must be a name of letters, digits, '.', '_' and '-'", a.Name)
		v.want(!seen[a.Name], key+".name", "must differ from the names of the other arms", a.Name)
		seen[a.Name] = true
		s.checkAssignments(v, key+".set", a.Set)
		for _, seed := range s.Seeds {
			name := s.RunName(a.Name, seed, 99)
			if !ValidRunName(name) {
				v.want(false, key+".name", "makes a name of a run that is too long", name)
				break
			}
		}
	}
	seeds := map[uint64]bool{}
	for i, seed := range s.Seeds {
		v.want(!seeds[seed], fmt.Sprintf("seeds[%d]", i), "must differ from the other seeds", seed)
		seeds[seed] = true
	}
	for i, c := range s.Comparisons {
		key := fmt.Sprintf("comparisons[%d]", i)
		v.want(seen[c.A], key+".a", "must be the name of an arm", c.A)
		v.want(seen[c.B], key+".b", "must be the name of an arm", c.B)
		v.want(c.A != c.B, key, "must name two arms", c.A)
		v.want(!c.Gate || len(s.Seeds) >= 2, key+".gate", "needs at least 2 seeds: from one nothing is known about another", len(s.Seeds))
	}
	if data, err := s.JSON(); err == nil {
		v.want(len(data) <= mostStudyWords, "study", fmt.Sprintf("must be at most %d bytes as JSON", mostStudyWords), len(data))
	}
	var lines []string
	for _, p := range v.problems {
		lines = append(lines, p.text)
	}
	if len(lines) > 0 {
		return invalidStudy(lines)
	}
	return nil
}

func (s *Study) checkCollapse(v *checker) {
	c := s.Collapse
	v.want(c.Share >= 0 && c.Share < 1, "collapse.share", "must be at least 0 and less than 1", c.Share)
	v.want(c.GradNorm == 0 || c.GradNorm > 1, "collapse.grad_norm", "must be 0 or greater than 1", c.GradNorm)
	atLeast(v, "collapse.tokens", c.Tokens, 0)
	v.want(c.NoAnswer >= 0 && c.NoAnswer < 1, "collapse.no_answer", "must be at least 0 and less than 1", c.NoAnswer)
}

// checkAssignments refuses keys that the study itself sets.
func (s *Study) checkAssignments(v *checker, key string, sets []string) {
	for i, set := range sets {
		name, _, ok := strings.Cut(set, "=")
		at := fmt.Sprintf("%s[%d]", key, i)
		v.want(ok, at, "must be an assignment key=value", set)
		v.want(name != "run.seed", at, "must not set run.seed: list seeds under the key seeds", set)
		v.want(name != "recipe", at, "must not set recipe: the key recipe of the study does", set)
	}
}

// matched reports what keeps the runs from being comparable: other dev problems, or another budget.
func (s *Study) matched(runs []StudyRun) []string {
	var problems []string
	first := runs[0]
	for _, r := range runs[1:] {
		if r.Seed != first.Seed {
			continue // as the arm with the first seed
		}
		for _, x := range []struct {
			what string
			a, b any
		}{
			{"model.path", first.Config.Model.Path, r.Config.Model.Path},
			{"data.*, which chooses the dev problems", first.Config.Data, r.Config.Data},
			{"rollout.max_prompt, which chooses the problems", first.Config.Rollout.MaxPrompt, r.Config.Rollout.MaxPrompt},
			{"rollout.thinking, which chooses the problems", first.Config.Rollout.Thinking, r.Config.Rollout.Thinking},
			{"validation.*", first.Config.Validation, r.Config.Validation},
			{"run.validate_every", first.Config.Run.ValidateEvery, r.Config.Run.ValidateEvery},
		} {
			if !reflect.DeepEqual(x.a, x.b) {
				problems = append(problems, fmt.Sprintf("arm %s: %s: must be as in arm %s, or their problems cannot be paired: %v there, %v here", r.Arm, x.what, first.Arm, x.a, x.b))
			}
		}
		if a, b := budget(first.Config), budget(r.Config); a != b {
			problems = append(problems, fmt.Sprintf(
				"arm %s: run.steps x rollout.batch_problems x rollout.group_size: must be as in arm %s, for a matched budget: %d trajectories there, %d here", r.Arm, first.Arm, a, b))
		}
	}
	return problems
}

// budget is the number of trajectories that a configuration trains.
func budget(c *Config) int {
	return (c.Run.Steps - c.Run.InitStep) * c.Rollout.BatchProblems * c.Rollout.GroupSize
}
