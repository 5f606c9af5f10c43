// Package rl is the pure mathematics of the reinforcement-learning update: group advantages, the
// Score-Centering objective and its gradient coefficients, optimiser settings. It has no state, reads no
// files and knows no engine; engines call Row once for every trained token. Sources are in docs/numerics.md.
package rl
