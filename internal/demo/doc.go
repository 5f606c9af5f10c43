// Package demo generates what the bundled demo needs: problems in the parquet schema of BAAI/TACO, with every quirk that
// internal/dataset must catch, and the corpus on which the demo model is warm-started.
//
// A problem is a sentence composed of slots: a filter, an operation, a last step with a number. A solution is one to
// two lines of Python composed the same way. A wrong solution of the corpus is the right solution of another
// problem, so the model learns the language of solutions and a noisy meaning of the statements, and what it gets wrong is what reinforcement
// learning can put right: some slot values are confused systematically, all slip at random. No problem of the corpus is a
// bundled problem. Everything is a pure function of a seed.
//
// The package may import dataset, fault, judge and rng.
package demo
