package obs

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// SDKMetrics gives the Temporal SDK metrics in r. Names are the SDK's with the endings of Prometheus: _total for counters, _seconds
// for timers, which are histograms. A nil r gives nil, which the SDK takes for no metrics.
//
// Tags become labels if they are on a list of tags with few values; task queues that belong to one run or one host are named by their
// kind. What the SDK reports during a replay it has held back already.
func SDKMetrics(r prometheus.Registerer) client.MetricsHandler {
	if r == nil {
		return nil
	}
	s := &sdkMetrics{
		counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*prometheus.GaugeVec{}, timers: map[string]*prometheus.HistogramVec{},
	}
	r.MustRegister(s)
	return handler{s, nil}
}

// sdkLabels are the tags that are kept. The others (client_name, Nexus) say nothing here.
var sdkLabels = []string{
	"activity_type", "cause", "failure_reason", "namespace", "operation", "poller_type", "status_code", "task_queue", "worker_type", "workflow_type",
}

// sdkSeconds are the buckets of the SDK's timers: from a request to an update of a policy.
var sdkSeconds = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000}

// sdkMetrics collects the SDK's metrics. One name can come with different tags, so every set of label names has a vector of its own,
// and the collector is one that declares nothing.
type sdkMetrics struct {
	mu       sync.RWMutex
	counters map[string]*prometheus.CounterVec // by name and label names
	gauges   map[string]*prometheus.GaugeVec
	timers   map[string]*prometheus.HistogramVec
}

// Describe implements prometheus.Collector; nothing is declared.
func (s *sdkMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *sdkMetrics) Collect(ch chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, v := range s.counters {
		v.Collect(ch)
	}
	for _, v := range s.gauges {
		v.Collect(ch)
	}
	for _, v := range s.timers {
		v.Collect(ch)
	}
}

// handler is the SDK's view of sdkMetrics with some tags.
type handler struct {
	s    *sdkMetrics
	tags map[string]string
}

// WithTags implements client.MetricsHandler.
func (h handler) WithTags(tags map[string]string) client.MetricsHandler {
	all := maps.Clone(h.tags)
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range tags {
		if !slices.Contains(sdkLabels, k) {
			continue
		}
		if k == "task_queue" {
			v = queueKind(v)
		}
		all[k] = v
	}
	return handler{h.s, all}
}

// queueKind names the queues of one host or one run by their kind: what is before the slash. The server's queues for what a worker
// remembers of workflows are named by host and process.
func queueKind(queue string) string {
	kind, _, _ := strings.Cut(queue, "/")
	if strings.Contains(kind, ":") {
		return "sticky"
	}
	return kind
}

// Counter implements client.MetricsHandler.
func (h handler) Counter(name string) client.MetricsCounter {
	v := vector(h, h.s.counters, name+"_total", func(name string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: sdkHelp}, labels)
	})
	return counter{v.With(h.tags)}
}

// Gauge implements client.MetricsHandler.
func (h handler) Gauge(name string) client.MetricsGauge {
	v := vector(h, h.s.gauges, name, func(name string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: sdkHelp}, labels)
	})
	return gauge{v.With(h.tags)}
}

// Timer implements client.MetricsHandler.
func (h handler) Timer(name string) client.MetricsTimer {
	v := vector(h, h.s.timers, name+"_seconds", func(name string, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: sdkHelp, Buckets: sdkSeconds}, labels)
	})
	return timer{v.With(h.tags)}
}

// sdkHelp is the help of all of the SDK's metrics; Temporal documents them.
const sdkHelp = "Of the Temporal SDK, see https://docs.temporal.io/references/sdk-metrics."

func vector[V any](h handler, of map[string]*V, name string, make func(string, []string) *V) *V {
	labels := slices.Sorted(maps.Keys(h.tags))
	key := name + " " + strings.Join(labels, " ")
	h.s.mu.RLock()
	v := of[key]
	h.s.mu.RUnlock()
	if v != nil {
		return v
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if of[key] == nil {
		of[key] = make(name, labels)
	}
	return of[key]
}

type counter struct{ c prometheus.Counter }

// Inc implements client.MetricsCounter. A counter never falls: a negative number is left out.
func (c counter) Inc(n int64) {
	if n > 0 {
		c.c.Add(float64(n))
	}
}

type gauge struct{ g prometheus.Gauge }

// Update implements client.MetricsGauge.
func (g gauge) Update(v float64) { g.g.Set(v) }

type timer struct{ o prometheus.Observer }

// Record implements client.MetricsTimer.
func (t timer) Record(d time.Duration) { t.o.Observe(d.Seconds()) }
