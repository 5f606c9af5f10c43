package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// CertificateFile is the name of the conversion manifest in an export.
const CertificateFile = "certificate.json"

// Certificate is the conversion manifest: what was exported from what, and what was checked. It is written only after all
// checks passed on the files themselves, as they were read back.
type Certificate struct {
	Format  int    `json:"format"` // 1
	Run     string `json:"run,omitempty"`
	Step    int    `json:"step"`
	Updates int    `json:"updates"` // of the optimiser
	// SourceState is the digest of the checkpoint's whole state, WeightsDigest that of the exported BF16 tensors: the digest of the
	// published policy version of the step.
	SourceState   string   `json:"source_state_digest"`
	WeightsDigest string   `json:"weights_digest"`
	DType         string   `json:"dtype"`
	TotalBytes    int64    `json:"total_bytes"` // of all tensors, without headers
	Parameters    int64    `json:"parameters"`
	Tensors       []Tensor `json:"tensors"`
	Files         []File   `json:"files"`
	Tokenizer     Load     `json:"tokenizer"`
	Forward       Forward  `json:"forward"`
	// Lacks says what the base model's files lack for the Hugging Face library to load the export by its directory alone; empty: nothing.
	Lacks []string `json:"lacks,omitempty"`
	// Seal is the SHA-256 of this file with an empty seal.
	Seal string `json:"seal"`
}

// Tensor is one tensor of the export with the results of its checks.
type Tensor struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	File  string `json:"file"`
	// SHA256 is of the tensor's bytes in its file; SourceSHA256 of the FP32 bytes that it was rounded from.
	SHA256       string `json:"sha256"`
	SourceSHA256 string `json:"source_sha256"`
	Finite       bool   `json:"finite"`
	// Rounded says that every element is the BF16 rounding, to nearest, ties to even, of its source.
	Rounded bool `json:"equals_rounded_source"`
}

// Roles of files in an export.
const (
	RoleWeights = "weights" // safetensors and their index
	RoleCopied  = "copied"  // the base model's bytes
	RoleAdded   = "added"   // summaries given by the caller
)

// File is one file of the export.
type File struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Load is the result of loading the tokenizer from the exported files.
type Load struct {
	Tokens int    `json:"tokens"` // size of its table
	Digest string `json:"digest"`
}

// Forward is a short forward pass from the exported files: the log-probability of each of Tokens[1:]. Tolerance is how far another engine's may be,
// in nats, by the arithmetic of the one that computed these; without one it is engine.FP32Distance.
type Forward struct {
	Text     string    `json:"text"`
	Tokens   []int32   `json:"tokens"`
	LogProbs []float32 `json:"log_probs"`

	Tolerance float64 `json:"tolerance,omitempty"`
}

// allowed is the tolerance; none is larger than that of the coarsest engine.
func (f Forward) allowed() float64 {
	if f.Tolerance == 0 {
		return engine.FP32Distance
	}
	return min(f.Tolerance, engine.BF16Distance)
}

// encode returns the file's bytes, sealed.
func (c Certificate) encode() ([]byte, error) {
	c.Seal = ""
	plain, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Internal, "export.Certificate", "%w", err)
	}
	c.Seal = digest(plain)
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Internal, "export.Certificate", "%w", err)
	}
	return append(data, '\n'), nil
}

// ReadCertificate reads an export's certificate and verifies its seal. Errors: NotFound (no export), Corrupt.
func ReadCertificate(dir string) (Certificate, error) {
	const op = "export.ReadCertificate"
	data, err := os.ReadFile(filepath.Join(dir, CertificateFile))
	if os.IsNotExist(err) {
		return Certificate{}, fault.New(fault.NotFound, op, "%s has no %s", dir, CertificateFile).WithHint("give the directory of an export of steady")
	}
	if errors.Is(err, syscall.EISDIR) {
		return Certificate{}, fault.New(fault.Corrupt, op, "%s is a directory", CertificateFile).WithHint(hint)
	}
	if err != nil {
		return Certificate{}, classify(op, err)
	}
	return ParseCertificate(data)
}

// ParseCertificate reads a certificate and checks its seal. Errors: Corrupt.
func ParseCertificate(data []byte) (Certificate, error) {
	const op = "export.ReadCertificate"
	var c Certificate
	if err := json.Unmarshal(data, &c); err != nil {
		where := ""
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			where = fmt.Sprintf(" from byte %d on", syntax.Offset)
		}
		return Certificate{}, fault.New(fault.Corrupt, op, "%s is damaged: it cannot be read as a certificate%s", CertificateFile, where).WithHint(hint)
	}
	again, err := c.encode()
	if err != nil {
		return Certificate{}, err
	}
	if string(again) != string(data) || c.Format != 1 {
		return Certificate{}, fault.New(fault.Corrupt, op, "%s was changed after it was written: its seal does not hold", CertificateFile).WithHint(hint)
	}
	return c, nil
}

const hint = "the export is damaged: export the checkpoint again"

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
