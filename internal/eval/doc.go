// Package eval evaluates a model on a set of problems: it samples responses as a validation does, judges them, and estimates
// from them what the model would do, with intervals.
//
// Everything finished lies in a store, so that an evaluation goes on after a kill; its settings lie there too, and it goes on under no
// others. A fault of the machinery is tried again and ends the evaluation in the end; it never counts as a wrong answer. With an
// engine that is reproducible the result has the same bytes for any number of threads and kills, as far as no program runs close to
// a limit of time or memory.
package eval
