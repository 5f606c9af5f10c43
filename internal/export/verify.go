package export

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/tokenizer"
	"github.com/steadyrl/steady/internal/weights"
)

// probeText is what the forward pass reads.
const probeText = "Read two integers and print their sum.\n"

// Verify checks an export again from its files alone: the seal, every file's digest, every tensor's name, shape, finiteness
// and digest, the index, the tokenizer and, where newSampler is not nil, the forward pass. A file that the certificate does not
// name fails, since a loader might read it, except for the harmless ones that Extras lists.
//
// Errors: NotFound (no export), Corrupt (a check failed; the message names the tensor or the file), and the engine's.
func Verify(ctx context.Context, dir string, newSampler func(model.Config) (engine.Sampler, error)) (Certificate, error) {
	const op = "export.Verify"
	cert, err := ReadCertificate(dir)
	if err != nil {
		return Certificate{}, err
	}
	wrong := make([]error, len(cert.Files))
	_ = each(len(cert.Files), func(i int) error { // all that is wrong is told
		wrong[i] = ctx.Err()
		if wrong[i] == nil {
			wrong[i] = verifyFile(dir, cert.Files[i], cert)
		}
		return nil
	})
	if err := ctx.Err(); err != nil {
		return Certificate{}, err
	}
	found := slices.DeleteFunc(wrong, func(err error) bool { return err == nil })
	if err := strays(dir, cert); err != nil {
		if len(found) == 0 {
			return Certificate{}, err
		}
		found = append(found, err)
	}
	if len(found) > 0 {
		return Certificate{}, fault.New(fault.Corrupt, op, "%w", errors.Join(found...)).WithHint(hint)
	}
	w, err := weights.LoadDir(dir)
	if err != nil {
		return Certificate{}, fault.New(fault.Corrupt, op, "%w", err).WithHint(hint)
	}
	if err := verifyTensors(w, cert); err != nil {
		return Certificate{}, err
	}
	if _, err := complete(dir, w.Config); err != nil { // what the base model lacks is certified with its bytes
		return Certificate{}, fault.New(fault.Corrupt, op, "%w", err).WithHint(hint)
	}
	if newSampler == nil {
		if _, err := loadTokenizer(dir, w.Config); err != nil {
			return Certificate{}, err
		}
		return cert, nil
	}
	tok, fwd, err := tryModel(ctx, dir, w, newSampler)
	if err != nil {
		return Certificate{}, err
	}
	if tok != cert.Tokenizer || !slices.Equal(fwd.Tokens, cert.Forward.Tokens) {
		return Certificate{}, fault.New(fault.Corrupt, op, "the tokenizer gives %v, certified are %v", fwd.Tokens, cert.Forward.Tokens)
	}
	for i, lp := range fwd.LogProbs {
		if i >= len(cert.Forward.LogProbs) || !(math.Abs(float64(lp-cert.Forward.LogProbs[i])) <= cert.Forward.allowed()) {
			return Certificate{}, fault.New(fault.Corrupt, op, "the forward pass gives %v, certified are %v; %v nats are allowed between them",
				fwd.LogProbs, cert.Forward.LogProbs, cert.Forward.allowed())
		}
	}
	return cert, nil
}

// verifyFile compares a file with its digest. In a weights file that differs it names the tensors. Its errors, as those of strays,
// name no function: Verify joins them.
func verifyFile(dir string, f File, cert Certificate) error {
	data, err := os.ReadFile(filepath.Join(dir, filepath.Base(f.Name)))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Corrupt, "", "%s is missing", f.Name)
	}
	if errors.Is(err, syscall.EISDIR) {
		return fault.New(fault.Corrupt, "", "%s is a directory", f.Name)
	}
	if err != nil {
		return classify("export.Verify", err)
	}
	if int64(len(data)) == f.Size && digest(data) == f.SHA256 {
		return nil
	}
	if !strings.HasSuffix(f.Name, ".safetensors") {
		return fault.New(fault.Corrupt, "", "%s differs from the certificate", f.Name)
	}
	tensors, err := weights.ReadHeader(data)
	if err != nil {
		return fault.New(fault.Corrupt, "", "%s differs from the certificate, and its header is damaged: %w", f.Name, err)
	}
	var names []string
	for _, want := range cert.Tensors {
		if want.File != f.Name {
			continue
		}
		at := slices.IndexFunc(tensors, func(t weights.Tensor) bool { return t.Name == want.Name })
		if at < 0 || digest(data[tensors[at].Offset:tensors[at].Offset+tensors[at].Size]) != want.SHA256 {
			names = append(names, want.Name)
		}
	}
	if len(names) == 0 {
		return fault.New(fault.Corrupt, "", "the header of %s differs from the certificate; its tensors are whole", f.Name)
	}
	return fault.New(fault.Corrupt, "", "%s differs from the certificate in tensor %s", f.Name, strings.Join(names, ", "))
}

// strays refuses what the certificate does not name and a loader might read: weights, settings, templates, code.
func strays(dir string, cert Certificate) error {
	names, err := unnamed(dir, cert)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, harmless)
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.Corrupt, "", "the certificate does not name %s: not part of the export", strings.Join(names, ", ")).
		WithHint("move what is not part of the export to another place")
}

// Extras lists what lies in an export without a name in its certificate and does no harm: hidden files, Markdown pages and
// licences, which no loader of models reads. Verify passes over them.
func Extras(dir string, cert Certificate) ([]string, error) {
	names, err := unnamed(dir, cert)
	return slices.DeleteFunc(names, func(name string) bool { return !harmless(name) }), err
}

// unnamed lists the entries of dir that the certificate does not name, folders with a final slash.
func unnamed(dir string, cert Certificate) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, classify("export.Verify", err)
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if name == CertificateFile || slices.ContainsFunc(cert.Files, func(f File) bool { return f.Name == name }) {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return names, nil
}

func harmless(name string) bool {
	page := !strings.HasSuffix(name, "/") && (strings.HasSuffix(name, ".md") || name == "LICENSE" || name == "LICENSE.txt" || name == "NOTICE")
	return page || strings.HasPrefix(name, ".")
}

// verifyTensors compares names, shapes and the digest with the certificate, and looks for values that are not finite.
func verifyTensors(w *model.Weights, cert Certificate) error {
	const op = "export.Verify"
	if len(cert.Tensors) != len(w.Specs) {
		return fault.New(fault.Corrupt, op, "%d tensors are certified, the model has %d", len(cert.Tensors), len(w.Specs))
	}
	if err := each(len(w.Specs), func(i int) error {
		s, t := w.Specs[i], cert.Tensors[i]
		if t.Name != s.Name || !slices.Equal(t.Shape, s.Shape) || !t.Finite || !t.Rounded {
			return fault.New(fault.Corrupt, op, "tensor %s %v is certified as %+v", s.Name, s.Shape, t)
		}
		if at := slices.IndexFunc(w.Data[i], func(x float32) bool { return x-x != 0 }); at >= 0 {
			return fault.New(fault.Corrupt, op, "tensor %s: element %d is %v", s.Name, at, w.Data[i][at])
		}
		return nil
	}); err != nil {
		return err
	}
	if got := weights.Digest(w); got != cert.WeightsDigest {
		return fault.New(fault.Corrupt, op, "the tensors have digest %.12s, certified is %.12s", got, cert.WeightsDigest)
	}
	return nil
}

// tryModel loads the tokenizer of an export and runs its weights over a short text.
func tryModel(ctx context.Context, dir string, w *model.Weights, newSampler func(model.Config) (engine.Sampler, error)) (Load, Forward, error) {
	const op = "export.tryModel"
	tok, err := loadTokenizer(dir, w.Config)
	if err != nil {
		return Load{}, Forward{}, err
	}
	ids := tok.Encode(probeText)
	ids = ids[:min(len(ids), w.Config.MaxPosition)]
	if len(ids) < 2 || int(slices.Max(ids)) >= w.Config.Vocab {
		return Load{}, Forward{}, fault.New(fault.Corrupt, op, "the tokenizer gives %v for a model with a vocabulary of %d", ids, w.Config.Vocab)
	}
	s, err := newSampler(w.Config)
	if err != nil {
		return Load{}, Forward{}, err
	}
	defer s.Close() //nolint:errcheck // nothing of its state is kept
	if err := s.SetWeights(ctx, 0, w); err != nil {
		return Load{}, Forward{}, err
	}
	lp, err := s.Score(ctx, ids)
	if err != nil {
		return Load{}, Forward{}, err
	}
	for _, x := range lp {
		if x-x != 0 {
			return Load{}, Forward{}, fault.New(fault.Numeric, op, "the forward pass gives %v", lp)
		}
	}
	return Load{Tokens: tok.Size(), Digest: tok.Digest()}, Forward{Text: probeText, Tokens: ids, LogProbs: lp}, nil
}

func loadTokenizer(dir string, c model.Config) (*tokenizer.Tokenizer, error) {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "export.loadTokenizer", "%w", err)
	}
	if tok.Size() > c.Vocab {
		return nil, fault.New(fault.Corrupt, "export.loadTokenizer", "the tokenizer has %d tokens, the model %d", tok.Size(), c.Vocab)
	}
	return tok, nil
}

// place says where a tensor lies.
type place struct{ file, sha256 string }

// locate reads the headers of all weights files in dir and digests each tensor's bytes. Where there is an index, it
// must agree with the headers.
func locate(dir string) (map[string]place, error) {
	names, err := weights.WeightFiles(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]place{}
	var mu sync.Mutex
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, classify("export.locate", err)
		}
		tensors, err := weights.ReadHeader(data)
		if err != nil {
			return nil, err
		}
		if err := each(len(tensors), func(i int) error {
			t := tensors[i]
			sum := digest(data[t.Offset : t.Offset+t.Size])
			mu.Lock()
			defer mu.Unlock()
			out[t.Name] = place{name, sum}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, checkIndex(dir, out)
}
