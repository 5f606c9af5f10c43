// Package judge scores a response: it extracts the submitted program, runs it on each saved test and compares the outputs.
//
// Extraction (ExtractCode): of what follows the last end of reasoning in the last assistant segment, the last closed
// fenced block is the submission. Reasoning opened and not closed leaves nothing. A language tag does not matter,
// tool-call text is ordinary text.
//
// Comparison (Compare): white space at line ends and blank lines at the end do not count; lines and tokens must
// correspond; integers are exact at any length; a token is compared as a number, with a tolerance of 1e-6, only
// if the expected token has a fraction or an exponent.
//
// All tests are run, also after a failed one, because the reward is the share that passed. Tests stop when the program
// does not compile or the time budget of the submission is used up. docs/judge.md has the rules for users.
package judge
