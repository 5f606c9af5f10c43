// Package report turns the records of a run into one self-contained HTML page and a short table for a terminal.
//
// The page has no scripts and loads nothing. It is a pure function of the records: no clock, no machine, sorted
// orders. A part that the run did not leave, or has not left yet, is named as missing and never filled in; so a
// run in progress can be rendered at any time. The package reads the artifact store and writes nothing to it.
package report
