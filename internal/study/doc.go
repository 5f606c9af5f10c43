// Package study turns the records of the runs of a study into what they say about its arms: means and paired differences with 95 %
// intervals, runs that collapsed, a table, a picture and tables for other programs.
//
// It is a function of records: no clock, no random numbers, no files. docs/decisions/0018-studies.md says why the intervals are
// those that they are.
package study
