package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/steadyrl/steady/internal/fault"
)

// sealKey is how the last line of a manifest begins; behind it are the digits of the seal and sealEnd.
const (
	sealKey = `  "seal": "`
	sealEnd = "\"\n}\n"
)

// encodeManifest returns the manifest's file. Its last key is the SHA-256 of the file with an empty one.
func encodeManifest(m Manifest) ([]byte, error) {
	m.Seal = ""
	text, err := json.MarshalIndent(m, "", "  ") // map keys are sorted
	if err != nil {
		return nil, fault.New(fault.Internal, "dataset.Finish", "%w", err)
	}
	text = append(bytes.TrimSuffix(text, []byte("\n}")), ",\n"+sealKey+sealEnd...)
	sum := sha256.Sum256(text)
	text = append(bytes.TrimSuffix(text, []byte(sealEnd)), hex.EncodeToString(sum[:])+sealEnd...)
	return text, nil
}

// decodeManifest reads a manifest and compares it with its seal. One without a seal is of an older version of the program.
func decodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil || m.Format != 1 {
		return Manifest{}, damaged(ManifestFile)
	}
	if m.Seal == "" {
		return m, nil
	}
	at := len(data) - len(sealEnd) - hex.EncodedLen(sha256.Size)
	if at < 0 || !bytes.HasSuffix(data[:at], []byte(sealKey)) {
		return Manifest{}, damaged(ManifestFile)
	}
	sum := sha256.Sum256(append(bytes.Clone(data[:at]), sealEnd...))
	if string(data[at:]) != hex.EncodeToString(sum[:])+sealEnd {
		return Manifest{}, damaged(ManifestFile)
	}
	return m, nil
}

func damaged(name string) error {
	return fault.New(fault.Corrupt, "dataset.Open", "%s is not as it was written", name).WithHint("prepare the data set again")
}
