// Package textcol reads columns of text from Parquet files of which single pages and dictionaries have hundreds of megabytes.
//
// Parquet-go reads a page in three copies: compressed, decompressed and decoded. Here the compressed bytes are streamed and values are
// taken from the decompressed page where they are, so that a column needs one page, and its dictionary if it has one, and nothing grows with
// the number of rows. Footer and schema are parquet-go's; encodings other than plain text and dictionaries, and compressions other than
// Snappy, too, at its price.
//
// The package imports nothing of this module.
package textcol
