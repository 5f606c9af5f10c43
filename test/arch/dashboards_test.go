package arch

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	yamlv4 "go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/internal/metrics"
)

// A dashboard or an alert over a metric that nobody has is worse than none: it is empty for ever, and looks well. These tests read
// every expression in docker/ and compare it with what is registered.

// query is an expression and where it is.
type query struct{ where, expr string }

const (
	dashboard = "docker/grafana/dashboards/steady.json"
	ruleFile  = "docker/prometheus/rules.yml"
)

// panel is what the test reads of a panel of the dashboard.
type panel struct {
	Title   string
	Type    string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

func dashboardQueries(t *testing.T) ([]panel, []query) {
	t.Helper()
	var d struct {
		UID        string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &d); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	var out []query
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			out = append(out, query{dashboard + ": " + p.Title, q.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			out = append(out, query{dashboard + ": variable " + v.Name, fmt.Sprintf("count by (%s) (%s)", m[2], m[1])})
		}
	}
	return d.Panels, out
}

// alert is a rule of Prometheus.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var f struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yamlv4.Load([]byte(read(t, ruleFile)), &f, yamlv4.WithKnownFields()); err != nil {
		t.Fatalf("%s: %v", ruleFile, err)
	}
	var out []alert
	for _, g := range f.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// metricKind is what expressions may do with a metric.
type metricKind struct {
	kind   string
	labels []string // nil: those of the SDK
}

// knownMetrics are ours, those of the SDK, and the few of Prometheus and its client library that are used.
func knownMetrics(t *testing.T) map[string]metricKind {
	t.Helper()
	out := map[string]metricKind{
		"up": {"gauge", []string{}}, "process_resident_memory_bytes": {"gauge", []string{}}, "process_cpu_seconds_total": {"counter", []string{}},
	}
	for _, d := range metrics.New("v").Definitions() {
		out[d.Name] = metricKind{d.Type, append([]string{}, d.Labels...)}
	}
	for _, name := range sdkMetrics(t) {
		// What a name is, the SDK decides where it uses it; the endings say which forms exist at most.
		out[name+"_total"] = metricKind{"counter", nil}
		out[name] = metricKind{"gauge", nil}
		if strings.HasSuffix(name, "latency") {
			out[name+"_seconds"] = metricKind{"histogram", nil}
		}
	}
	return out
}

// sdkMetrics reads the names of the SDK's metrics from its source.
func sdkMetrics(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "go.temporal.io/sdk")
	cmd.Dir = root
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr(err))
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "internal/common/metrics/constants.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && fmt.Sprint(b.X) == "TemporalMetricsPrefix" {
			if lit, ok := b.Y.(*ast.BasicLit); ok {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, "temporal_"+s)
			}
		}
		return true
	})
	out = append(out, "temporal_request_failure", "temporal_request_latency", "temporal_long_request_failure", "temporal_long_request_latency") // made of two constants
	if len(out) < 40 {
		t.Fatalf("only %d metrics of the SDK were found", len(out))
	}
	return out
}

var (
	// functions of PromQL that are used, and whether they want a range of a counter.
	functions = map[string]bool{
		"rate": true, "increase": true, "delta": false, "time": false, "sum": false, "max": false, "min": false, "count": false, "absent": false,
		"histogram_quantile": false, "max_over_time": false, "avg_over_time": false, "topk": false,
	}
	words = []string{"by", "on", "and", "or", "unless"}
	// everywhere are the labels that Prometheus adds, and that of histograms.
	everywhere = []string{"job", "instance", "le"}
	sdkLabels  = []string{"activity_type", "cause", "failure_reason", "namespace", "operation", "poller_type", "status_code", "task_queue", "worker_type", "workflow_type"}

	tokens = regexp.MustCompile(`^(?:\s+|[a-zA-Z_:][\w:]*|\d+(?:\.\d+)?(?:e\d+)?|"[^"]*"|\[\d+[smhd]\]|=~|!~|!=|==|<=|>=|[-+*/(){},=<>])`)
	name   = regexp.MustCompile(`^[a-zA-Z_]\w*$`)
)

// mistakes lists what is wrong with an expression: text that is no PromQL of the part that is used here, brackets, metrics and labels that
// do not exist, rates of what is no counter. It is no parser of the whole language.
func mistakes(expr string, known map[string]metricKind) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	var list []string
	for rest := expr; rest != ""; {
		m := tokens.FindString(rest)
		if m == "" {
			return append(out, fmt.Sprintf("cannot be read at %q", rest))
		}
		if strings.TrimSpace(m) != "" {
			list = append(list, m)
		}
		rest = rest[len(m):]
	}
	at := func(i int) string {
		if i < 0 || i >= len(list) {
			return ""
		}
		return list[i]
	}
	labels, used := map[string]bool{}, 0 // of all metrics of the expression
	for _, l := range everywhere {
		labels[l] = true
	}
	var open []string // brackets, with the function before each
	var grouped []string
	for i := 0; i < len(list); i++ {
		switch tok := list[i]; {
		case tok == "(":
			open = append(open, at(i-1))
		case tok == ")":
			if len(open) == 0 {
				return append(out, "a bracket is closed that was not opened")
			}
			open = open[:len(open)-1]
		case tok == "by" || tok == "on":
			if at(i+1) != "(" {
				return append(out, tok+" without labels")
			}
			for i += 2; at(i) != ")"; i++ {
				if at(i) == "" {
					return append(out, "labels without an end")
				}
				if at(i) != "," {
					grouped = append(grouped, at(i))
				}
			}
		case !name.MatchString(tok) || slices.Contains(words, tok):
		case at(i+1) == "(" || at(i+1) == "by":
			if _, ok := functions[tok]; !ok {
				bad("%s is no function that is used here", tok)
			}
		default: // a metric
			used++
			base := tok
			k, ok := known[tok]
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if h, cut := strings.CutSuffix(tok, part); cut && !ok && known[h].kind == "histogram" {
					base, k, ok = h, metricKind{"counter", known[h].labels}, true
				}
			}
			if !ok {
				bad("there is no metric %s", tok)
				continue
			}
			if k.kind == "histogram" {
				bad("%s is a histogram: use its _bucket, _sum or _count", base)
			}
			own := k.labels
			if own == nil {
				own = sdkLabels
			}
			for _, l := range own {
				labels[l] = true
			}
			if at(i+1) == "{" {
				for i += 2; at(i) != "}"; i += 3 {
					if at(i) == "," {
						i++
					}
					if l := at(i); !slices.Contains(own, l) && !slices.Contains(everywhere, l) {
						bad("%s has no label %s", tok, l)
					}
					if !slices.Contains([]string{"=", "=~", "!=", "!~"}, at(i+1)) || !strings.HasPrefix(at(i+2), `"`) {
						return append(out, "a matcher of "+tok+" cannot be read")
					}
				}
				i++
			} else {
				i++
			}
			inside := ""
			if len(open) > 0 {
				inside = open[len(open)-1]
			}
			ranged := strings.HasPrefix(at(i), "[")
			if !ranged {
				i--
			}
			wantsCounter := functions[inside]
			// A maximum is as right for a counter: whether it ever was above a number.
			if found := ranged && k.kind == "counter"; wantsCounter != found && (wantsCounter || inside != "max_over_time") {
				bad("%s of %s, which is a %s", inside, tok, k.kind)
			}
		}
	}
	if len(open) > 0 {
		bad("%d brackets are not closed", len(open))
	}
	if used == 0 {
		bad("it has no metric")
	}
	for _, l := range grouped {
		if !labels[l] {
			bad("no metric has the label %s that it groups by", l)
		}
	}
	return out
}

func TestDashboards_everyExpressionIsAboutMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := knownMetrics(t)
	_, queries := dashboardQueries(t)
	for _, a := range alerts(t) {
		queries = append(queries, query{ruleFile + ": " + a.Alert, a.Expr})
	}
	if len(queries) < 50 {
		t.Fatalf("only %d expressions were found", len(queries))
	}
	for _, q := range queries {
		for _, m := range mistakes(q.expr, known) {
			t.Errorf("%s: %s\n  %s", q.where, m, q.expr)
		}
	}
}

// What a rule says to people must name labels that its alerts have.
func TestDashboards_alertsAreCompleteAndExplained(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/operations.md")
	seen := map[string]bool{}
	label, known := regexp.MustCompile(`\$labels\.(\w+)`), knownMetrics(t)
	for _, a := range alerts(t) {
		if seen[a.Alert] || !name.MatchString(a.Alert) {
			t.Errorf("bad or repeated name %q", a.Alert)
		}
		seen[a.Alert] = true
		if s := a.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or description", a.Alert)
		}
		if !strings.Contains(page, "`"+a.Alert+"`") {
			t.Errorf("docs/operations.md does not say what to do about %s", a.Alert)
		}
		for _, text := range a.Annotations {
			for _, m := range label.FindAllStringSubmatch(text, -1) {
				// A grouping keeps its labels only; without one the metric's stay.
				expr := a.Expr
				if strings.Contains(expr, " by (") {
					expr = strings.Join(regexp.MustCompile(`by \(([^)]*)\)`).FindStringSubmatch(expr)[1:], " ")
				}
				has := slices.Contains(everywhere, m[1]) && !strings.Contains(a.Expr, " by (")
				for metric, k := range known {
					has = has || strings.Contains(expr, metric) && slices.Contains(k.labels, m[1])
				}
				if !has && !slices.Contains(strings.Fields(expr), m[1]) {
					t.Errorf("%s says %s, which its alerts do not have", a.Alert, m[0])
				}
			}
		}
	}
}

func TestDashboards_panelsDoNotOverlapAndHaveExpressions(t *testing.T) {
	t.Parallel()
	panels, _ := dashboardQueries(t)
	taken := map[[2]int]string{}
	for _, p := range panels {
		if p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d expressions", p.Title, p.Type, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.LegendFormat == "" {
				t.Errorf("%s: expression %q is repeated or has no legend", p.Title, q.RefID)
			}
			refs[q.RefID] = true
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is wider than the page", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// The check finds each kind of mistake, and lets right expressions pass.
func TestDashboards_aWrongExpressionIsFound(t *testing.T) {
	t.Parallel()
	known := knownMetrics(t)
	for expr, want := range map[string]string{
		`sum by (split) (rate(steady_rollout_tokens_total[5m]))`:                                      "",
		`histogram_quantile(0.5, sum by (le, split) (rate(steady_rollout_unit_seconds_bucket[15m])))`: "",
		`time() - max by (run) (steady_run_progress_timestamp_seconds{run=~"$run"}) > 7200`:           "",
		`max by (run) (steady_dev_accuracy_ratio{run=~"a",source="published"})`:                       "",
		`rate(temporal_activity_execution_latency_seconds_bucket{activity_type="x"}[1m])`:             "",
		`delta(steady_run_step[1h])`:                 "",
		`max_over_time(steady_groups_total[1h]) > 0`: "",
		`max by (run) (steady_run_step and on (run, instance) topk by (run) (1, steady_run_steps))`: "",
		`steady_run_step and on (lineage) steady_run_steps`:                                         "label lineage",
		`steady_run_step and on run steady_run_steps`:                                               "on without labels",
		`steady_run_stepp`:                         "no metric steady_run_stepp",
		`steady_run_step{lineage="l0"}`:            "no label lineage",
		`sum by (lineage) (steady_run_step)`:       "label lineage",
		`rate(steady_run_step[5m])`:                "is a gauge",
		`increase(steady_groups_total)`:            "is a counter",
		`delta(steady_groups_total[5m])`:           "is a counter",
		`steady_rollout_unit_seconds`:              "is a histogram",
		`temporal_activity_latency_seconds_bucket`: "no metric",
		`sum(steady_run_step`:                      "not closed",
		`steady_run_step)`:                         "not opened",
		`summ(steady_run_step)`:                    "no function",
		`steady_run_step{run~"x"}`:                 "cannot be read",
		`steady_run_step{run="x}`:                  "cannot be read",
		`1 > 0`:                                    "no metric",
	} {
		got := strings.Join(mistakes(expr, known), "; ")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %q", expr, got, want)
		}
	}
}
