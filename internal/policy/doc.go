// Package policy keeps engines at the published versions of a policy.
//
// A Host holds a few samplers, one for each lineage of a run that its worker serves (and one for an
// exported model). It follows the live pointer of the artifact store while requests run, so that a new version is
// swapped in between two tokens; it loads a version in two phases: read and verify the file, swap,
// then compare the log-probabilities of a fixed probe with those the publisher recorded. Rollout workers use it;
// it knows neither text nor Temporal. It may import artifact, engine, fault, model and record.
package policy
