package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/steadyrl/steady/internal/fault"
)

const (
	digestKey    = "sha256" // of the metadata of every object
	partsAtOnce  = 4
	filesAtOnce  = 3
	maxParts     = 10_000
	reopenings   = 4 // of a download without a byte between them
	abandonedFor = 24 * time.Hour
)

// info is what the store knows of an object without its bytes.
type info struct {
	size   int64
	digest string // "" if another program wrote it
}

// head looks at an object. Without a bucket it is NotFound, too.
func (s *Store) head(ctx context.Context, key string) (info, error) {
	out, err := s.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.o.Bucket, Key: &key})
	if err != nil {
		return info{}, s.classify(ctx, "bucket.head", key, err)
	}
	return info{aws.ToInt64(out.ContentLength), out.Metadata[digestKey]}, nil
}

// put is upload of bytes in memory.
func (s *Store) put(ctx context.Context, key string, data []byte, digest string, create bool) error {
	return s.upload(ctx, key, bytes.NewReader(data), int64(len(data)), digest, create)
}

// upload writes an object whole. With create, an object that exists stays, and the error is errExists.
func (s *Store) upload(ctx context.Context, key string, r io.ReaderAt, size int64, digest string, create bool) error {
	if size > s.o.Part {
		return s.multipart(ctx, key, r, size, digest, create)
	}
	in := &s3.PutObjectInput{
		Bucket: &s.o.Bucket, Key: &key, Body: io.NewSectionReader(r, 0, size), ContentLength: &size, Metadata: map[string]string{digestKey: digest},
	}
	if create {
		in.IfNoneMatch = aws.String("*")
	}
	_, err := s.api.PutObject(ctx, in)
	return s.classify(ctx, "bucket.upload", key, err)
}

// multipart uploads a large object in parts, which are read when they are sent. What an error leaves is removed.
func (s *Store) multipart(ctx context.Context, key string, r io.ReaderAt, size int64, digest string, create bool) (err error) {
	const op = "bucket.upload"
	s.reap(ctx, key)
	begin := &s3.CreateMultipartUploadInput{Bucket: &s.o.Bucket, Key: &key, Metadata: map[string]string{digestKey: digest}}
	// Parts and upload must agree about a checksum on the way: AWS_REQUEST_CHECKSUM_CALCULATION=when_required leaves it out, for servers without.
	checked := s.api.Options().RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired
	if checked {
		begin.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	}
	made, err := s.api.CreateMultipartUpload(ctx, begin)
	if err != nil {
		return s.classify(ctx, op, key, err)
	}
	defer func() {
		if err != nil {
			s.abort(ctx, key, aws.ToString(made.UploadId))
		}
	}()
	part := max(s.o.Part, (size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (size+part-1)/part)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for i := range parts {
		g.Go(func() error {
			at := int64(i) * part
			number, n := int32(i+1), min(part, size-at) //nolint:gosec // at most 10 000
			out, err := s.api.UploadPart(gctx, &s3.UploadPartInput{
				Bucket: &s.o.Bucket, Key: &key, UploadId: made.UploadId, PartNumber: &number, Body: io.NewSectionReader(r, at, n), ContentLength: &n,
				ChecksumAlgorithm: begin.ChecksumAlgorithm,
			})
			if err != nil {
				return s.classify(gctx, op, key, err)
			}
			parts[i] = types.CompletedPart{PartNumber: &number, ETag: out.ETag}
			if checked {
				parts[i].ChecksumCRC32 = out.ChecksumCRC32
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &s.o.Bucket, Key: &key, UploadId: made.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	if create {
		in.IfNoneMatch = aws.String("*")
	}
	_, err = s.api.CompleteMultipartUpload(ctx, in)
	if err = s.classify(ctx, op, key, err); fault.Is(err, fault.NotFound) {
		// The upload is gone: the answer to an earlier try was lost.
		if got, herr := s.head(ctx, key); herr == nil && got.digest == digest && got.size == size {
			return nil
		}
		return fault.New(fault.Busy, op, "%s: the upload was ended by somebody else", key).WithHint("the run tries again")
	}
	return err
}

// abort ends an upload, also when the caller's context is done. It does its best: reap finds what stays.
func (s *Store) abort(ctx context.Context, key, id string) {
	actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	_, _ = s.api.AbortMultipartUpload(actx, &s3.AbortMultipartUploadInput{Bucket: &s.o.Bucket, Key: &key, UploadId: &id})
}

// reap ends uploads below a prefix of keys that were begun long ago: a process was killed there. It does its best.
func (s *Store) reap(ctx context.Context, prefix string) {
	out, err := s.api.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &s.o.Bucket, Prefix: &prefix})
	if err != nil {
		return
	}
	for _, u := range out.Uploads {
		if u.Initiated != nil && time.Since(*u.Initiated) > abandonedFor {
			s.abort(ctx, aws.ToString(u.Key), aws.ToString(u.UploadId))
		}
	}
}

// download is an object's bytes as a stream. A connection that breaks is opened again where it broke, as long as the object is the same.
type download struct {
	s      *Store
	ctx    context.Context //nolint:containedctx // lives as long as one call
	key    string
	body   io.ReadCloser
	etag   *string
	at     int64
	size   int64
	digest string
	broken int
}

func (s *Store) open(ctx context.Context, key string) (*download, error) {
	d := &download{s: s, ctx: ctx, key: key}
	return d, d.connect()
}

func (d *download) connect() error {
	in := &s3.GetObjectInput{Bucket: &d.s.o.Bucket, Key: &d.key}
	if d.at > 0 {
		in.Range, in.IfMatch = aws.String(fmt.Sprintf("bytes=%d-", d.at)), d.etag
	}
	out, err := d.s.api.GetObject(d.ctx, in)
	if err != nil {
		return d.s.classify(d.ctx, "bucket.download", d.key, err)
	}
	if d.at == 0 {
		d.etag, d.size, d.digest = out.ETag, aws.ToInt64(out.ContentLength), out.Metadata[digestKey]
	}
	d.body = out.Body
	return nil
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	if d.at == d.size {
		return 0, io.EOF
	}
	for {
		n, err := d.body.Read(p)
		d.at += int64(n)
		switch {
		case n > 0:
			d.broken = 0
			return n, nil // an error comes again, or the stream is opened again
		case err == nil:
			continue
		}
		_ = d.body.Close() // it is broken
		if d.ctx.Err() != nil {
			return 0, d.ctx.Err()
		}
		if d.broken++; d.broken > reopenings {
			return 0, fault.New(fault.Busy, "bucket.download", "%s breaks off after %d of %d bytes: %w", d.key, d.at, d.size, err).
				WithHint("look at the network and the server of the artifact store; the run tries again")
		}
		if err := d.connect(); err != nil {
			if errors.Is(err, errExists) { // If-Match did not hold
				err = fault.New(fault.Busy, "bucket.download", "%s changed while it was read", d.key).WithHint("the run tries again")
			}
			return 0, err
		}
	}
}

// Close implements io.Closer.
func (d *download) Close() error { return d.body.Close() }

// fetch reads an object whole and verifies its digest, if the store knows it.
func (s *Store) fetch(ctx context.Context, key string) ([]byte, string, error) {
	d, err := s.open(ctx, key)
	if err != nil {
		return nil, "", err
	}
	defer d.Close()
	data := make([]byte, d.size)
	if _, err := io.ReadFull(d, data); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(data)
	got := hex.EncodeToString(sum[:])
	if d.digest != "" && d.digest != got {
		return nil, "", damaged(key, got, d.digest)
	}
	return data, got, nil
}

func damaged(key, got, want string) error {
	return fault.New(fault.Corrupt, "bucket.fetch", "%s has digest %.12s, written was %.12s", key, got, want).
		WithHint("restore the object from another version or a copy of the bucket")
}

// fetchFile writes an object to a new file and verifies it.
func (s *Store) fetchFile(ctx context.Context, key, to string, want file) error {
	d, err := s.open(ctx, key)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // what a run leaves is for other programs too
	if err != nil {
		return cacheError(err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(fileWriter{f}, h), d)
	if err != nil {
		return err
	}
	if got := hexSum(h); got != want.SHA256 || n != want.Size {
		return damaged(key, got, want.SHA256)
	}
	if err := f.Close(); err != nil {
		return cacheError(err)
	}
	return nil
}

// fileWriter gives the errors of a file of the cache their kind.
type fileWriter struct{ f *os.File }

func (w fileWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		err = cacheError(err)
	}
	return n, err
}

// cacheError is about a local file: a full disk, a directory without rights.
func cacheError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return fault.New(fault.Busy, "bucket.cache", "the local cache of the artifact store: %w", err).
		WithHint("free space on its device, or make it writable; the run tries again")
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
