package report_test

import (
	"bytes"
	"encoding/json"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/export"
)

func (y *synthetic) dataset() {}

func (y *synthetic) export() { y.put(y.l.Export()+"/"+export.CertificateFile, y.certificate(true)) }

// certificate returns the bytes of a sealed certificate of the last step.
func (y *synthetic) certificate(rounded bool) []byte {
	c := export.Certificate{
		Format: 1, Run: y.l.Run, Step: y.steps, Updates: y.steps, SourceState: digest("state", y.steps), WeightsDigest: digest("weights", y.steps), DType: "BF16",
		TotalBytes: 1720320, Parameters: 860160,
		Tensors: []export.Tensor{
			{Name: "model.embed_tokens.weight", Shape: []int{535, 128}, Finite: true, Rounded: true},
			{Name: "model.norm.weight", Shape: []int{128}, Finite: true, Rounded: rounded},
		},
		Files:     []export.File{{Name: "model.safetensors", Role: export.RoleWeights}, {Name: "config.json", Role: export.RoleCopied}},
		Tokenizer: export.Load{Tokens: 535}, Forward: export.Forward{Text: "Read", Tokens: []int32{1, 2, 3}, LogProbs: []float32{-1.5, -0.25}},
	}
	seal := func() []byte {
		data, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			y.t.Fatal(err)
		}
		return data
	}
	c.Seal = artifact.Digest(seal())
	return bytes.Join([][]byte{seal(), []byte("\n")}, nil)
}
