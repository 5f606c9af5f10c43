// Package agent is the tool loop over token ids: sample a turn, run its tool call, insert the answer, go on.
//
// The loop is a state machine whose whole state is the trajectory, so it goes on from any flush of it, on any worker
// and under any policy version. Sampled ids are never decoded and encoded again; answers are inserted with mask 0, the
// separator after the end-of-turn token included. The model's text is parsed, never evaluated. What becomes of
// a turn:
//
//	no call, or one inside a finished think block  end "stop"
//	a call before the end of the text              end "stop"; it is not run, for nothing can follow that token
//	cut by the budget of a turn, of the response
//	or of the trajectory                           end "turn_length", "length" or "total_length"; a call in it is not run
//	a call in the last allowed turn                end "turns"; it is not run
//	a call, and no token is left for its answer    end "tool_budget"; it is not run
//	a readable call of run_python                  run; its output is the answer
//	a call that cannot be read, another tool,
//	wrong arguments, a think block left open       an error text is the answer; the third in a row ends with "parse_failures"
//	several calls                                  the first counts; the answer says how many others were ignored
//	an answer that does not fit into the budgets   not inserted; end "tool_budget"
//
// A call is the JSON object after the tag <tool_call> and before </tool_call>, with "name" and "arguments"; the decoder
// finds its end, so tags inside its strings are text. Arguments may be an object or a string that holds one; "code" must be
// a string, "stdin" a string, null or absent. Of equal keys the last counts, other keys are ignored. A call that is
// quoted in text is a call. One that holds a control token, an id without a token, bytes that are not UTF-8 or half a surrogate
// pair cannot be read.
//
// The answer is the program's standard output, or "(no output)"; if the program failed, its outcome and the last line of its
// standard error follow. What is longer than the limit is cut in the middle. Faults of the machinery are errors of Run,
// never answers. docs/trajectories.md has all of this at length.
//
// The package may import chat, engine, fault, jsonl, rng, tokenizer and trajectory.
package agent
