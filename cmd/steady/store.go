package main

import (
	"context"
	"path/filepath"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/bucket"
	"github.com/steadyrl/steady/internal/fault"
)

// storeFlags say where the artifact store is, if it is not a directory.
type storeFlags struct {
	Store string `help:"Artifact store in a bucket, s3://BUCKET/PREFIX?region=REGION&endpoint=URL, with the credentials of the AWS environment. Default: the directory store in that of --data." env:"STEADY_STORE" placeholder:"URL"`
}

// check looks at the address.
func (f storeFlags) check() error {
	if f.Store == "" {
		return nil
	}
	if _, err := bucket.Parse(f.Store); err != nil {
		return fault.New(fault.Invalid, "", "--store: %w", err).WithHint("%s", fault.HintOf(err))
	}
	return nil
}

// make opens the store of a data directory for workers, and makes it if need be.
func (f storeFlags) make(ctx context.Context, data string) (artifact.Store, error) {
	if f.Store != "" {
		return openBucket(ctx, data, f.Store, false)
	}
	return artifact.NewFiles(filepath.Join(data, "store"))
}

// openBucket opens a store in a bucket, with its local copies in the data directory.
func openBucket(ctx context.Context, data, address string, readOnly bool) (artifact.Store, error) {
	place, err := bucket.Parse(address)
	if err != nil {
		return nil, err
	}
	return bucket.Open(ctx, bucket.Options{Place: place, Cache: filepath.Join(data, "cache"), ReadOnly: readOnly})
}
