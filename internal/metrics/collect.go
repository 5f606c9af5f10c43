package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collected are the metrics that are read when they are asked for.
var collected = []Definition{
	{"steady_store_up", "gauge", nil, forStore, "1 if the artifact store is there, else 0."},
	{"steady_store_free_bytes", "gauge", nil, forStore, "Bytes of the store's file system that this process may still write."},
	{"steady_store_size_bytes", "gauge", nil, forStore, "Size of the store's file system in bytes."},
	{"steady_server_up", "gauge", nil, forControl, "1 if the Temporal server described its task queues, else 0."},
	{"steady_queue_backlog_tasks", "gauge", []string{"queue", "type"}, forControl, "Tasks that wait in a task queue, as the server estimates. Type is workflow or activity."},
	{"steady_queue_backlog_age_seconds", "gauge", []string{"queue", "type"}, forControl, "Age of the oldest task that waits in a task queue."},
	{"steady_queue_pollers", "gauge", []string{"queue", "type"}, forControl, "Workers that asked for tasks of a queue in the last minutes, as the server knows them."},
	{"steady_gpu_utilization_ratio", "gauge", []string{"gpu", "model"}, "all, with cuda", "Share of the last sample period in which a kernel ran, 0 to 1."},
	{"steady_gpu_memory_used_bytes", "gauge", []string{"gpu", "model"}, "all, with cuda", "Memory of the GPU in use, by all processes."},
	{"steady_gpu_memory_size_bytes", "gauge", []string{"gpu", "model"}, "all, with cuda", "Memory of the GPU."},
	{"steady_gpu_temperature_celsius", "gauge", []string{"gpu", "model"}, "all, with cuda", "Temperature of the GPU."},
	{"steady_gpu_power_watts", "gauge", []string{"gpu", "model"}, "all, with cuda", "Power that the GPU draws."},
	{"steady_gpu_uncorrected_errors", "gauge", []string{"gpu", "model"}, "all, with cuda", "Memory errors that were not corrected since the driver was loaded."},
}

// GPU is what is known of a GPU. A value below 0 is unknown and has no series.
type GPU struct {
	Index                  int
	Model                  string
	MemoryUsed, MemorySize int64 // bytes
	Temperature            int   // degrees Celsius
	Power                  int   // watts
	Utilization            int   // percent
	UncorrectedErrors      int64
}

// Queue is what the server says of one type of tasks of a task queue.
type Queue struct {
	Name, Type string
	Backlog    int64
	Age        time.Duration
	Pollers    int
}

// Sources are read when the metrics are asked for. Nil ones have no metrics.
type Sources struct {
	// Store returns free and all bytes of the store's file system. An error means that the store is away.
	Store func() (free, size uint64, err error)
	// Queues asks the server. An error means that it does not answer.
	Queues func(context.Context) ([]Queue, error)
	GPUs   func() ([]GPU, error)
	// Closed asks the server whether a run has ended, of which this process heard nothing for a while: its end may have been another
	// process's work. After an error the series stay.
	Closed func(ctx context.Context, run string) (bool, error)
}

const (
	// sourceAge is how long what a source said is used again.
	sourceAge = 5 * time.Second
	// sourceTimeout bounds the question to the server; scrapes have a time-out of ten seconds by default.
	sourceTimeout = 3 * time.Second
	// quietTime is how long a run must be silent in this process before the server is asked whether it has ended.
	quietTime = 2 * time.Minute
)

// Collect registers the sources. It may be called once.
func (s *Set) Collect(src Sources) {
	if s == nil {
		return
	}
	c := &sources{descs: map[string]*prometheus.Desc{}, now: time.Now}
	for _, d := range collected {
		c.descs[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	if src.Store != nil {
		c.read = append(c.read, func() []prometheus.Metric { return c.store(src.Store) })
	}
	if src.Queues != nil {
		c.read = append(c.read, func() []prometheus.Metric { return c.queues(src.Queues) })
	}
	if src.GPUs != nil {
		c.read = append(c.read, func() []prometheus.Metric { return c.gpus(src.GPUs) })
	}
	if src.Closed != nil {
		c.read = append(c.read, func() []prometheus.Metric { s.forgetClosed(src.Closed); return nil })
	}
	s.src = c
	s.reg.MustRegister(c)
}

// forgetClosed removes the series of runs that have ended elsewhere.
func (s *Set) forgetClosed(closed func(context.Context, string) (bool, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	for _, run := range s.runs.quiet(quietTime) {
		if done, err := closed(ctx, run); err == nil && done {
			s.Ended(run)
		}
	}
}

// sources is the collector of Sources.
type sources struct {
	descs map[string]*prometheus.Desc
	read  []func() []prometheus.Metric
	now   func() time.Time

	mu   sync.Mutex
	at   time.Time
	last []prometheus.Metric
}

// Describe implements prometheus.Collector.
func (c *sources) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range collected {
		ch <- c.descs[d.Name]
	}
}

// Collect implements prometheus.Collector.
func (c *sources) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || c.now().Sub(c.at) >= sourceAge {
		c.last, c.at = nil, c.now()
		for _, read := range c.read {
			c.last = append(c.last, read()...)
		}
	}
	for _, m := range c.last {
		ch <- m
	}
}

func (c *sources) gauge(name string, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, v, labels...)
}

func (c *sources) store(read func() (uint64, uint64, error)) []prometheus.Metric {
	free, size, err := read()
	if err != nil {
		return []prometheus.Metric{c.gauge("steady_store_up", 0)}
	}
	return []prometheus.Metric{
		c.gauge("steady_store_up", 1),
		c.gauge("steady_store_free_bytes", float64(free)),
		c.gauge("steady_store_size_bytes", float64(size)),
	}
}

func (c *sources) queues(read func(context.Context) ([]Queue, error)) []prometheus.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	qs, err := read(ctx)
	if err != nil {
		return []prometheus.Metric{c.gauge("steady_server_up", 0)}
	}
	out := []prometheus.Metric{c.gauge("steady_server_up", 1)}
	for _, q := range qs {
		out = append(out,
			c.gauge("steady_queue_backlog_tasks", float64(q.Backlog), q.Name, q.Type),
			c.gauge("steady_queue_backlog_age_seconds", q.Age.Seconds(), q.Name, q.Type),
			c.gauge("steady_queue_pollers", float64(q.Pollers), q.Name, q.Type))
	}
	return out
}

func (c *sources) gpus(read func() ([]GPU, error)) []prometheus.Metric {
	gpus, err := read()
	if err != nil {
		return nil
	}
	var out []prometheus.Metric
	for _, g := range gpus {
		for _, v := range []struct {
			name  string
			value float64
		}{
			{"steady_gpu_utilization_ratio", float64(g.Utilization) / 100},
			{"steady_gpu_memory_used_bytes", float64(g.MemoryUsed)},
			{"steady_gpu_memory_size_bytes", float64(g.MemorySize)},
			{"steady_gpu_temperature_celsius", float64(g.Temperature)},
			{"steady_gpu_power_watts", float64(g.Power)},
			{"steady_gpu_uncorrected_errors", float64(g.UncorrectedErrors)},
		} {
			if v.value >= 0 {
				out = append(out, c.gauge(v.name, v.value, strconv.Itoa(g.Index), g.Model))
			}
		}
	}
	return out
}
