// Package live serves pages about the runs of a store while they run: the list of runs, the report of each, a comparison of two, the
// trajectories with their tokens in colour, the ledger and the failures. It also gives the Status that a terminal shows.
//
// It only reads. What it reads of a run is written once and never changes, so it reads it once: a look for news lists a few directories
// and opens the files that are new. The Stamp of a run is a digest of these lists; it is the entity tag of the pages, so a browser that
// asks again gets 304 and no work is done.
//
// Texts of a run are untrusted, because a model and its programs wrote them: pages come from html/template, control and direction
// characters are spelled out, and the content security policy forbids inline scripts and styles and every other host. Names in an
// address are checked before they become names in the store. Nobody is asked for a password: Listen binds what it is told, and a server
// on a loopback address answers requests for loopback names only.
//
// It may import artifact, batch, engine, engine/cpu, eval, fault, judge, ledger, model, record, report, rl, tokenizer, trajectory, transcript and weights.
package live
