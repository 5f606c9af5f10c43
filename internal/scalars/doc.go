// Package scalars turns the records of a run into tables that other programs read: CSV, Parquet, and the event files of TensorBoard.
//
// There is one row for every step that left a record, and one column for every number of a step and of its validation. What a run did
// not measure in a step is absent: an empty cell, a null, no point of a curve; never 0 and never NaN. The bytes are a function of the
// records alone. The package reads the store; it imports no engine, no workflow and no configuration.
package scalars
