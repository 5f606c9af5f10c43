// Package modelcard writes the README.md of an exported model, as model hubs read it: front matter in YAML, then data, method, every validation with its
// interval, faults and drops, limits, and digests. Everything comes from the records of the run's lineage and from the files of its base model;
// nothing is asked of a person, and what is not recorded is said to be unknown. The same records give the same bytes: no times, no host names.
// Local paths are shortened to their last part. It may import artifact, dataset, eval, fault, ledger, model, record and weights.
package modelcard
