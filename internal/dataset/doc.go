// Package dataset turns shards in the parquet schema of BAAI/TACO into the problems of a run.
//
// A Recipe says how. Its work has two halves, each a pure function of its input. Recipe.Shard reads one shard row by row, applies the
// rules that need only the row, checks the reference solutions, and leaves parts in a Work, a directory from which interrupted work goes
// on. Recipe.Finish reads the parts of all shards, drops excluded problems and duplicates, splits, and makes a directory appear: train.parquet, dev.parquet,
// decisions.parquet and manifest.json. Both give the same bytes whenever they are run again. Open reads such a
// directory; Check verifies it. No shard is ever in memory whole.
//
// A row that is unusable is a Decision, never an error; a file that cannot be read is an error of kind fault.Corrupt.
// Public columns and hidden tests are apart: Open does not read tests, Set.Tests does. Reference solutions are
// in no output. docs/data.md in the repository lists the rules.
//
// The package may import artifact, fault and judge. The folder lcb reads LiveCodeBench's files.
package dataset
