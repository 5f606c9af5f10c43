package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/steadyrl/steady/internal/checkpoint"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/durable"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/weights"
)

// DefaultShardBytes is the shard limit of the Hugging Face library up to its release 4: Qwen3-4B becomes two files.
const DefaultShardBytes = 5_000_000_000

// Options say what to export.
type Options struct {
	Checkpoint string // directory of the checkpoint
	BaseModel  string // directory with the base model's configuration, tokenizer and templates; its weights are not read
	Out        string // directory to make; it appears when all is verified
	ShardBytes int64  // limit of tensor bytes in a file; 0 means DefaultShardBytes
	Run        string // run id for the certificate; may be empty
	Step       int    // step that the checkpoint must hold
	// Extra are more files by name: metrics, a configuration summary, a model card.
	Extra map[string][]byte
	// NewSampler makes the engine of the forward pass; it is required.
	NewSampler func(model.Config) (engine.Sampler, error)
	// Tolerance is how far log-probabilities of another engine may be from those of NewSampler's, in nats; 0 means engine.FP32Distance.
	Tolerance float64
}

// copied are the files that are taken over from the base model by their bytes where it has them; config.json and
// tokenizer.json must be there.
var copied = []string{
	"LICENSE", "added_tokens.json", "chat_template.json", "chat_template.jinja", "config.json", "generation_config.json",
	"merges.txt", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json",
}

// Export writes a verified export of a checkpoint. Idempotence: an export of the same state that verifies stays and
// its certificate is returned; anything else at Out is replaced.
//
// Errors: NotFound and Corrupt of the checkpoint, Invalid (base model), Numeric (a tensor is not finite in BF16), Corrupt (the
// written files fail a check), Busy (disk full). After an error nothing is at Out that was not there before.
func Export(ctx context.Context, o Options) (Certificate, error) {
	const op = "export.Export"
	if o.NewSampler == nil {
		return Certificate{}, fault.New(fault.Internal, op, "no engine for the forward pass")
	}
	master, meta, err := checkpoint.LoadMaster(ctx, o.Checkpoint)
	if err != nil {
		return Certificate{}, err
	}
	if meta.Step != o.Step {
		return Certificate{}, fault.New(fault.Invalid, op, "the checkpoint is of step %d, asked for is %d", meta.Step, o.Step)
	}
	if old, err := Verify(ctx, o.Out, o.NewSampler); err == nil && old.SourceState == meta.State && old.Step == o.Step && old.Run == o.Run {
		return old, nil
	}
	parent := filepath.Dir(o.Out)
	// What is above belongs to the store: if it is away, nothing may be made in its place.
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as every directory of the store
		return Certificate{}, classify(op, err)
	}
	durable.Sweep(parent) // one that was killed while it exported leaves gigabytes
	tmp, release, err := durable.TempDir(parent)
	if err != nil {
		return Certificate{}, classify(op, err)
	}
	defer release()
	defer os.RemoveAll(tmp) //nolint:errcheck // gone after a successful rename
	cert := Certificate{
		Format: 1, Run: o.Run, Step: o.Step, Updates: meta.Updates, SourceState: meta.State, DType: string(weights.BF16),
		WeightsDigest: weights.Digest(master), Forward: Forward{Tolerance: o.Tolerance},
	}
	if err := writeAll(ctx, tmp, o, master, &cert); err != nil {
		return Certificate{}, err
	}
	if err := prove(ctx, tmp, master, o.NewSampler, &cert); err != nil {
		return Certificate{}, err
	}
	if err := install(tmp, o.Out, cert); err != nil {
		return Certificate{}, err
	}
	return ReadCertificate(o.Out)
}

// install writes the certificate and makes the directory appear.
func install(tmp, out string, cert Certificate) error {
	const op = "export.Export"
	data, err := cert.encode()
	if err != nil {
		return err
	}
	if err := durable.WriteNew(filepath.Join(tmp, CertificateFile), data); err != nil {
		return classify(op, err)
	}
	crashpoint.Here("trainer.export.certificate")
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as every directory of the store
		return classify(op, err)
	}
	if err := durable.SyncDir(tmp); err != nil {
		return classify(op, err)
	}
	if err := os.RemoveAll(out); err != nil {
		return classify(op, err)
	}
	crashpoint.Here("trainer.export.before")
	if err := os.Rename(tmp, out); err != nil {
		return classify(op, err)
	}
	crashpoint.Here("trainer.export.after")
	if err := durable.SyncDir(filepath.Dir(out)); err != nil {
		return classify(op, err)
	}
	return nil
}

// writeAll writes all files but the certificate and notes their digests.
func writeAll(ctx context.Context, dir string, o Options, master *model.Weights, cert *Certificate) error {
	config, err := weights.LoadConfig(o.BaseModel)
	if err != nil {
		return err
	}
	if config != master.Config {
		return fault.New(fault.Invalid, "export.Export", "config.json of the base model describes another model than the checkpoint: %+v, %+v", config, master.Config)
	}
	add := func(name, role string, data []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		sum := make(chan string, 1)
		go func() { sum <- digest(data) }() // while it is written
		if err := durable.WriteNew(filepath.Join(dir, name), data); err != nil {
			return classify("export.Export", err)
		}
		cert.Files = append(cert.Files, File{Name: name, Role: role, Size: int64(len(data)), SHA256: <-sum})
		crashpoint.Here("trainer.export.file")
		return nil
	}
	for _, name := range copied {
		data, err := os.ReadFile(filepath.Join(o.BaseModel, name))
		if errors.Is(err, fs.ErrNotExist) {
			if name == "tokenizer.json" {
				return fault.New(fault.Invalid, "export.Export", "the base model has no tokenizer.json").WithHint("complete %s", o.BaseModel)
			}
			continue
		}
		if err != nil {
			return classify("export.Export", err)
		}
		if err := add(name, RoleCopied, data); err != nil {
			return err
		}
	}
	limit := o.ShardBytes
	if limit <= 0 {
		limit = DefaultShardBytes
	}
	shards, err := weights.Shards(master, weights.BF16, limit)
	if err != nil {
		return err
	}
	for _, f := range shards {
		if err := add(f.Name, RoleWeights, f.Data); err != nil {
			return err
		}
	}
	return addExtra(o.Extra, cert, add)
}

// addExtra adds the caller's files in the order of their names; they may not hide a file of the export.
func addExtra(extra map[string][]byte, cert *Certificate, add func(name, role string, data []byte) error) error {
	names := make([]string, 0, len(extra))
	for name := range extra {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		taken := slices.ContainsFunc(cert.Files, func(f File) bool { return f.Name == name })
		if taken || name == CertificateFile || filepath.Base(name) != name || strings.HasSuffix(name, ".safetensors") {
			return fault.New(fault.Invalid, "export.Export", "a file named %q cannot be added", name)
		}
		if err := add(name, RoleAdded, extra[name]); err != nil {
			return err
		}
	}
	return nil
}

// prove reads the written files back, compares every tensor with the rounding of its source and runs the model.
func prove(ctx context.Context, dir string, master *model.Weights, newSampler func(model.Config) (engine.Sampler, error), cert *Certificate) error {
	back, err := weights.LoadDir(dir)
	if err != nil {
		return err
	}
	where, err := locate(dir)
	if err != nil {
		return err
	}
	cert.Tensors = make([]Tensor, len(master.Specs))
	if err := each(len(master.Specs), func(i int) error {
		s := master.Specs[i]
		at, ok := where[s.Name]
		if !ok {
			return fault.New(fault.Corrupt, "export.Export", "tensor %s was not written", s.Name)
		}
		if err := proveTensor(s.Name, back.Data[i], master.Data[i]); err != nil {
			return err
		}
		cert.Tensors[i] = Tensor{Name: s.Name, Shape: s.Shape, File: at.file, SHA256: at.sha256, SourceSHA256: digestFloats(master.Data[i]), Finite: true, Rounded: true}
		return nil
	}); err != nil {
		return err
	}
	for _, data := range master.Data {
		cert.TotalBytes += int64(2 * len(data))
		cert.Parameters += int64(len(data))
	}
	if got := weights.Digest(back); got != cert.WeightsDigest {
		return fault.New(fault.Corrupt, "export.Export", "the exported tensors have digest %.12s, want %.12s", got, cert.WeightsDigest)
	}
	if cert.Lacks, err = complete(dir, master.Config); err != nil {
		return err
	}
	tolerance := cert.Forward.Tolerance
	cert.Tokenizer, cert.Forward, err = tryModel(ctx, dir, back, newSampler)
	cert.Forward.Tolerance = tolerance
	return err
}

// proveTensor compares what was read with the rounding of its source.
func proveTensor(name string, back, source []float32) error {
	for j, x := range source {
		got := back[j]
		if want := weights.RoundBF16(x); math.Float32bits(got) != math.Float32bits(want) {
			return fault.New(fault.Corrupt, "export.Export", "tensor %s: element %d is %v, the rounding of its source is %v", name, j, got, want)
		}
		if got-got != 0 {
			return fault.New(fault.Numeric, "export.Export", "tensor %s: element %d is %v", name, j, got)
		}
	}
	return nil
}

// each calls do for 0 to n-1, on all cores, and returns the error of the first.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range n {
		running <- struct{}{}
		all.Go(func() {
			errs[i] = do(i)
			<-running
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// digestFloats is the SHA-256 of little-endian float32s.
func digestFloats(x []float32) string {
	const chunk = 1 << 16
	h := sha256.New()
	var buf []byte
	for part := range slices.Chunk(x, chunk) {
		buf = weights.AppendF32(buf[:0], part)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// classify gives an error of the file system its kind.
func classify(op string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, op, "%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Busy, op, "%w", err).WithHint("free space on the device of the export; the run waits and goes on by itself")
	}
	return fault.New(fault.Internal, op, "%w", fmt.Errorf("file system: %w", err))
}
