package report_test

import (
	"bytes"
	"encoding/json"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/record"
)

func (y *synthetic) dataset() {
	const dir = "datasets/0123456789ab"
	y.json(y.l.Dataset(), record.Dataset{Dir: dir, Key: "0123456789ab", Rows: 400, Train: 220, Dev: 64})
	m := dataset.Manifest{
		Format: 1, RulesVersion: 1, Seed: 42, Rows: 400, Good: 300, Train: 220, Dev: 64, WantTrain: 220, WantDev: 64,
		Inputs: []dataset.Input{{Name: "demo-00.parquet"}, {Name: "demo-01.parquet"}}, Settings: map[string]string{"solution_tries": "3", "python": "3.12.4"},
	}
	counts := map[dataset.Reason]int{
		dataset.Kept: 284, dataset.CallBased: 31, dataset.BadTests: 9, dataset.Image: 6, dataset.SpecialJudge: 12, dataset.ReferenceFailed: 20,
		dataset.Excluded: 5, dataset.DuplicateText: 17, dataset.NotSelected: 16,
	}
	for _, r := range append([]dataset.Reason{dataset.Kept}, dataset.Rules()...) {
		m.Reasons = append(m.Reasons, dataset.Count{Name: string(r), Rows: counts[r]})
	}
	y.json(dir+"/"+dataset.ManifestFile, m)
}

func (y *synthetic) export() {
	y.put(y.l.Export()+"/"+export.CertificateFile, y.certificate(true, digest("weights", y.steps)))
}

// certificate returns the bytes of a sealed certificate of the last step.
func (y *synthetic) certificate(rounded bool, weights string) []byte {
	c := export.Certificate{
		Format: 1, Run: y.l.Run, Step: y.steps, Updates: y.steps, SourceState: digest("state", y.steps), WeightsDigest: weights, DType: "BF16",
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
