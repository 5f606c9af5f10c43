// Package external is a sampler whose model runs in a server of its own: vLLM's /v1/completions or SGLang's /generate.
//
// It has the sampling side of engine.Sampler, Generate and Score, and no other: weights cannot be published to the server,
// so its version is fixed. That serves one policy, for example to evaluate it; training of any mode (sync or async) has new
// weights after every step and is refused by SetWeights. Where the contract of engine.Sampler cannot be kept, this is what holds:
//
//   - Tokens are drawn by the server. Its seed comes from Request.Random at the length of the prefix, so that a retry asks
//     for the same draws, but no server promises equal tokens in another batch. A trajectory that goes on from a flush is a true
//     sample, but not bit for bit the one of an undisturbed run.
//   - Token.Entropy is a lower bound: the record and, as one more symbol, the mass outside of it.
//   - The server may sample ahead of the sink; what was sampled behind an error of the sink is lost.
//   - Ties at the edge of a record are cut as the server cuts them; inside, the smaller id comes first.
//
// New asks the server for everything that the sampler relies on, with a few short requests, and refuses it with a hint
// otherwise: it serves the model by name, and the context that is needed; it takes token ids and adds none; it answers with the ids it
// sampled; records are as wide as needed, cover the distribution that was sampled from (temperature included, nothing
// truncated) and agree with the log-probabilities of scored text; stop tokens end a turn and are part of it. What a server
// samples when its record says something else cannot be seen in a few requests, nor, later, too small a log-probability of a token
// outside of its record. Whether it has the right weights is known only to who compares Score with a record of another engine, as
// policy.Host does with every version.
//
// While it runs, every answer is checked again. A server that is gone, hangs, or breaks off is Lost, one that is too busy is
// Busy, and answers that contradict the request or themselves are Infrastructure: all of these are tried again and none becomes a
// token. Package externaltest has a server for tests.
//
// The package may import engine, fault, model and rl.
package external
