// Package dataset turns shards in the parquet schema of BAAI/TACO into the problems of a run.
//
// The work has two halves, each a pure function of its input. PrepareShard reads one shard row by row, applies the
// rules that need only the row, checks the reference solutions, and writes one file. Finish reads the files of all
// shards, drops excluded problems and duplicates, splits, and returns the files of a directory: train.parquet, dev.parquet,
// decisions.parquet and manifest.json. Both give the same bytes whenever they are run again. Open reads such a
// directory; Check verifies it.
//
// A row that is unusable is a Decision, never an error; a file that cannot be read is an error of kind fault.Corrupt.
// Public columns and hidden tests are apart: Open does not read tests, Set.Tests does. Reference solutions are
// in no output. docs/data.md in the repository lists the rules.
//
// The package may import fault and judge.
package dataset
