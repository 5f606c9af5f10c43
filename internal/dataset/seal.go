package dataset

import (
	"bytes"
	"encoding/json"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// encodeManifest returns the manifest's file, sealed as every document of the store.
func encodeManifest(m Manifest) ([]byte, error) {
	m.Seal = ""
	text, err := json.MarshalIndent(m, "", "  ") // map keys are sorted
	if err != nil {
		return nil, fault.New(fault.Internal, "dataset.Finish", "%w", err)
	}
	return artifact.Seal(append(text, '\n')), nil
}

// decodeManifest reads a manifest and compares it with its seal. One without a seal is of an older version of the program.
func decodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil || m.Format != 1 {
		return Manifest{}, damaged(ManifestFile)
	}
	if _, holds := artifact.SealOf(data); !holds && m.Seal != "" {
		return Manifest{}, damaged(ManifestFile)
	}
	return m, nil
}

func damaged(name string) error {
	return fault.New(fault.Corrupt, "dataset.Open", "%s is not as it was written", name).WithHint("prepare the data set again")
}
