package artifact

import (
	"bytes"
	"encoding/json"
	"path"
	"strconv"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// The last member of a JSON document of the store is its seal, on a line of its own: the SHA-256 of the document with an empty one. So
// `sed 's/^  "seal": "[0-9a-f]*"$/  "seal": ""/' FILE | sha256sum` computes it.
const (
	sealKey = `  "seal": "`
	sealEnd = "\"\n}\n"
	hexSize = 64
)

// Seal puts the seal into an indented JSON object with a final newline. One without members stays as it is.
func Seal(doc []byte) []byte {
	body, ok := bytes.CutSuffix(doc, []byte("\n}\n"))
	if !ok {
		return doc
	}
	out := append(bytes.Clone(body), ",\n"+sealKey...)
	digest := Digest(append(bytes.Clone(out), sealEnd...))
	return append(out, digest+sealEnd...)
}

// SealOf returns the seal of a document, and whether its content is that which was sealed. A document without a seal in its place has
// the seal "".
func SealOf(data []byte) (seal string, holds bool) {
	at := len(data) - len(sealEnd) - hexSize
	if at < 0 || !bytes.HasSuffix(data, []byte(sealEnd)) || !bytes.HasSuffix(data[:at], []byte("\n"+sealKey)) {
		return "", false
	}
	seal = string(data[at : at+hexSize])
	return seal, seal == Digest(append(bytes.Clone(data[:at]), sealEnd...))
}

// Decode reads the document of an object into v, which may be nil, and returns its seal: empty for a document of a build that wrote none.
//
// Errors: Corrupt (no JSON of v's shape, or another content than was sealed).
func Decode(name string, data []byte, v any) (seal string, err error) {
	const op = "artifact.Decode"
	seal, holds := SealOf(data)
	if seal == "" && bytes.Contains(data, []byte(`"seal"`)) { // of a member below, or the seal is no longer in its place
		var top map[string]json.RawMessage
		holds = json.Unmarshal(data, &top) != nil || top["seal"] == nil
	} else if seal == "" {
		holds = true
	}
	if v == nil {
		v = new(json.RawMessage)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return "", fault.New(fault.Corrupt, op, "%s is damaged%s: %w", name, ofStep(name), err).
			WithHint("restore the file from a copy of the store, or start another run")
	}
	if !holds {
		return "", fault.New(fault.Corrupt, op, "%s was changed after it was written%s: its seal does not hold", name, ofStep(name)).
			WithHint("restore the file from a copy of the store; what it says now is not what the run recorded")
	}
	return seal, nil
}

// ofStep says of which step a record is, if its name is a number.
func ofStep(name string) string {
	n, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".json"))
	if err != nil {
		return ""
	}
	return " (step " + strconv.Itoa(n) + ")"
}
