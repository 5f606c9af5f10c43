// Package agent is the tool loop over token ids: sample a turn, run its tool call, insert the answer, go on.
//
// The loop is a state machine whose whole state is the trajectory, so it goes on from any flush of it, on any worker
// and under any policy version. Sampled ids are never decoded and encoded again; answers are inserted with mask 0, the
// separator after the end-of-turn token included. The model's text is parsed, never evaluated. What becomes of
// a turn:
//
//	no call, or a call inside unfinished thinking   end "stop"
//	cut by a token budget                           end "length"; a call in it is not run
//	a call in the last allowed turn                 end "turns"; it is not run
//	a readable call of run_python                   run; its output is the answer
//	a call that cannot be read, another tool, wrong arguments
//	                                                an error text is the answer; the third in a row ends with "parse"
//	several calls                                   the first counts; the answer says that the others were ignored
//	an answer that does not fit into the budget     not inserted; end "length"
//
// The package may import chat, engine, fault, rng, tokenizer and trajectory.
package agent
