package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// promtoolVariable holds Prometheus' own checker. `make check-alerts` builds it and runs these tests.
const promtoolVariable = "STEADY_TEST_PROMTOOL"

const (
	ruleFile = "docker/prometheus/rules.yml"
	caseFile = "test/deploy/alerts.yml"
)

type ruleGroups struct {
	Groups []struct {
		Name  string           `yaml:"name"`
		Rules []map[string]any `yaml:"rules"`
	} `yaml:"groups"`
}

func readRules(t *testing.T) ruleGroups {
	t.Helper()
	var r ruleGroups
	if err := yaml.Unmarshal([]byte(readFile(t, ruleFile)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func alertNames(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			out = append(out, fmt.Sprint(r["alert"]))
		}
	}
	if len(out) < 15 {
		t.Fatalf("the test sees %d rules, too few", len(out))
	}
	return out
}

// Every rule has a case in which it fires and one in which it does not, and the healthy run is looked at for every rule each time.
func TestAlerts_everyRuleHasItsCases(t *testing.T) {
	t.Parallel()
	var f struct {
		Tests []struct {
			Name  string `yaml:"name"`
			Cases []struct {
				At    string `yaml:"eval_time"`
				Alert string `yaml:"alertname"`
				Want  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, caseFile)), &f); err != nil {
		t.Fatal(err)
	}
	rules := alertNames(t)
	fires, silent, healthy := map[string]bool{}, map[string]bool{}, map[string][]string{}
	for i, test := range f.Tests {
		for _, c := range test.Cases {
			switch {
			case !slices.Contains(rules, c.Alert):
				t.Errorf("%s: there is no rule %s", test.Name, c.Alert)
			case len(c.Want) > 0:
				fires[c.Alert] = true
			case i > 0:
				silent[c.Alert] = true
			}
			if i == 0 {
				healthy[c.At] = append(healthy[c.At], c.Alert)
				if len(c.Want) > 0 {
					t.Errorf("%s fires in %q", c.Alert, test.Name)
				}
			}
		}
	}
	for _, r := range rules {
		if !fires[r] || !silent[r] {
			t.Errorf("%s: a case in which it fires: %v; one in which it does not: %v", r, fires[r], silent[r])
		}
	}
	if len(healthy) < 4 {
		t.Errorf("the healthy run is looked at %d times", len(healthy))
	}
	for at, names := range healthy {
		if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(rules))) {
			t.Errorf("the healthy run is looked at after %s for %v, want every rule", at, names)
		}
	}
}

// Prometheus asks every worker of the compose file, at the port on which it answers.
func TestPrometheus_scrapesEveryWorkerOfTheComposeFile(t *testing.T) {
	t.Parallel()
	var p struct {
		RuleFiles []string `yaml:"rule_files"`
		Jobs      []struct {
			Name string `yaml:"job_name"`
			DNS  []struct {
				Names []string `yaml:"names"`
				Type  string   `yaml:"type"`
				Port  int      `yaml:"port"`
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "docker/prometheus/prometheus.yml")), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Jobs) != 1 || len(p.Jobs[0].DNS) != 1 || p.Jobs[0].Name != "steady" || !slices.Equal(p.RuleFiles, []string{filepath.Base(ruleFile)}) {
		t.Fatalf("the configuration is %+v", p)
	}
	text := readFile(t, "docker/compose.yaml")
	var c compose
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	var want []string
	for name, s := range c.Services {
		if len(s.Command) > 0 && s.Command[0] == "worker" {
			want = append(want, name)
			if !slices.ContainsFunc(s.Networks, func(n string) bool { return slices.Contains(c.Services["prometheus"].Networks, n) }) {
				t.Errorf("prometheus and %s have no network in common", name)
			}
		}
	}
	slices.Sort(want)
	d := p.Jobs[0].DNS[0]
	if got := slices.Sorted(slices.Values(d.Names)); !slices.Equal(got, want) || d.Type != "A" {
		t.Errorf("scraped are %v of type %q, workers are %v", got, d.Type, want)
	}
	if !strings.Contains(text, fmt.Sprintf("STEADY_METRICS: \":%d\"", d.Port)) {
		t.Errorf("the workers do not answer at port %d", d.Port)
	}
}

// The rules are checked by the release of Prometheus that the compose file starts: module v0.XYY.Z is release vX.Y.Z.
func TestPromtool_isOfTheReleaseOfTheComposeFile(t *testing.T) {
	t.Parallel()
	image := regexp.MustCompile(`prom/prometheus:v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(readFile(t, "docker/compose.yaml"))
	if image == nil {
		t.Fatal("the compose file has no prometheus")
	}
	want := fmt.Sprintf("github.com/prometheus/prometheus v0.%s%02s.%s", image[1], image[2], image[3])
	if !strings.Contains(readFile(t, "tools/prometheus/go.mod"), want+" ") {
		t.Errorf("the image is %s, tools/prometheus/go.mod does not have %s", image[0], want)
	}
}

// promtool runs Prometheus' checker at the root of the tree.
func promtool(t *testing.T, args ...string) (output string, ok bool) {
	t.Helper()
	program := os.Getenv(promtoolVariable)
	if program == "" {
		t.Skip("no promtool: `make check-alerts` builds it and runs this test")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return string(out), err == nil
}

func TestPromtool_takesTheConfiguration(t *testing.T) {
	t.Parallel()
	// A lint is an error: duplicate rules, too long ranges.
	if out, ok := promtool(t, "check", "config", "--lint=all", "--lint-fatal", "docker/prometheus/prometheus.yml"); !ok {
		t.Errorf("%s", out)
	}
}

func TestPromtool_everyAlertFiresOnItsFaultOnly(t *testing.T) {
	t.Parallel()
	if out, ok := promtool(t, "test", "rules", caseFile); !ok {
		t.Errorf("%s", out)
	}
}

// The cases notice rules that never fire, that always do, that do not wait, and that are of another severity: each of them.
func TestPromtool_theCasesNoticeBrokenRules(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(rule map[string]any) (changed bool){
		"never":    func(r map[string]any) bool { r["expr"] = "vector(1) > 2"; return true },
		"always":   func(r map[string]any) bool { r["expr"] = "vector(1)"; return true },
		"at once":  func(r map[string]any) bool { _, ok := r["for"]; delete(r, "for"); return ok },
		"severity": func(r map[string]any) bool { r["labels"] = map[string]any{"severity": "none"}; return true },
	} {
		rules := readRules(t).Groups[0]
		var changed []string
		for _, r := range rules.Rules {
			if change(r) {
				changed = append(changed, fmt.Sprint(r["alert"]))
			}
		}
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": rules.Name, "rules": rules.Rules}}})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cases := strings.Replace(readFile(t, caseFile), "../../"+ruleFile, "rules.yml", 1)
		for file, data := range map[string][]byte{"rules.yml": text, "cases.yml": []byte(cases)} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, ok := promtool(t, "test", "rules", filepath.Join(dir, "cases.yml"))
		if ok {
			t.Errorf("%s: the cases pass", what)
		}
		for _, name := range changed {
			if !regexp.MustCompile(`alertname: ` + name + `\b`).MatchString(out) {
				t.Errorf("%s: no case of %s fails\n%s", what, name, out)
			}
		}
	}
}

// Every expression of the dashboard is read by Prometheus' own parser.
func TestPromtool_readsEveryExpressionOfTheDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "docker/grafana/dashboards/steady.json")), &d); err != nil {
		t.Fatal(err)
	}
	var rules []any
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			rules = append(rules, map[string]any{"record": fmt.Sprintf("dashboard:%d", len(rules)), "expr": q.Expr, "labels": map[string]string{"panel": p.Title}})
		}
	}
	if len(rules) < 50 {
		t.Fatalf("only %d expressions were found", len(rules))
	}
	check := func(rules []any) (string, bool) {
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "dashboard.yml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return promtool(t, "check", "rules", file)
	}
	if out, ok := check(rules); !ok {
		t.Errorf("%s", out)
	}
	broken := maps.Clone(rules[0].(map[string]any)) //nolint:forcetypeassert,errcheck // made above
	broken["expr"] = "sum by (run) steady_run_step{"
	if out, ok := check([]any{broken}); ok {
		t.Errorf("a broken expression passes: %s", out)
	}
}
