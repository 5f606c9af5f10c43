// Package deepcoder reads DeepCoder-Preview-Dataset: Parquet files of the configurations primeintellect, taco, lcbv5 and codeforces, with
// the columns problem and tests and perhaps solutions, starter_code and a struct metadata with func_name.
//
// The cells of tests have one of two shapes, a list of objects with input and output or one object with inputs and outputs, as JSON or
// as a Python literal, and single cells have hundreds of megabytes. Files are read by row group, column and page: what is in memory is a page
// of the tests, or one cell if that is larger, and the tests of one problem. Columns that an evaluation does not need are not read.
//
// The package imports dataset with its readers of literals and of columns, judge for tests, and fault for errors.
package deepcoder
