// Package metrics holds the Prometheus metrics of a process and serves them.
//
// A Set is made once for a process and handed down; every method may be called on a nil Set and does nothing then, so that code
// that counts needs no condition. Names follow Prometheus: prefix steady_, base units, _total for counters. Labels have few
// values. The label run is the exception that needs care: only gauges have it, and only the last MaxRuns runs that a process
// served have series; see runs. Counters have no run.
//
// The package imports the client library of Prometheus and nothing of Temporal; package obs adds the metrics of its SDK.
package metrics
