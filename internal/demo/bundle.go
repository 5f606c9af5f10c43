package demo

import (
	"embed"
	"io/fs"
)

// ShardName is the file name of the bundled shard.
const ShardName = "taco-demo-00000-of-00001.parquet"

//go:embed data
var data embed.FS

//go:embed model
var bundledModel embed.FS

// Shard opens the bundled shard. The file can be read at any place.
func Shard() (fs.File, error) { return data.Open("data/" + ShardName) }

// Model returns the files of the bundled model, a Hugging Face directory.
func Model() fs.FS {
	sub, err := fs.Sub(bundledModel, "model")
	if err != nil {
		panic(err) // a constant, valid path
	}
	return sub
}

// Excluded opens the bundled list of excluded identities: one problem of the shard stands on it.
func Excluded() (fs.File, error) { return data.Open("data/excluded.jsonl") }
