// Package trajectory owns everything that is recorded of a trajectory, token by token.
//
// One type holds the ids, the mask, log-probabilities, entropies, policy versions, turn indices and top-k records; its
// methods append to all of them or to none, so that their lengths are equal by construction. Nothing is ever
// decoded and encoded again: what was sampled is what trains.
//
// On disk a file of trajectories is Parquet, one row each:
//
//	problem_id string, problem int32, split string, group int32, sample int32, tag int32, submission int32,
//	prompt_tokens int32, sampled_tokens int32, end string, turns string (JSON), seconds double, top_k int32,
//	ids list<int32>, mask list<boolean>, log_probs list<float>, entropies list<float>,
//	versions list<int32>, turn_index list<int32>   (all of the length of the trajectory),
//	head_ids binary (int32, little endian), head_log_probs binary (float32, little endian)
//	                                                (length times top_k, zeros where the mask is false)
//
// The format is Parquet 2 with Snappy; any Parquet tool reads it. A row group ends after about 16 MiB of records, so
// Write and Read need little memory besides the trajectories. The file's own metadata hold the SHA-256 of all rows under
// "steady.rows_sha256", so that damage is found also in a file to which nobody has a reference, such as a flush.
//
// The package may import engine and fault.
package trajectory
