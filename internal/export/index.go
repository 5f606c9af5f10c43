package export

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/weights"
)

// checkIndex verifies that the index, where there is one, names every tensor with the file that holds it.
func checkIndex(dir string, where map[string]place) error {
	const op = "export.checkIndex"
	data, err := os.ReadFile(filepath.Join(dir, weights.IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classify(op, err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return fault.New(fault.Corrupt, op, "%s: %w", weights.IndexFile, err)
	}
	for name, at := range where {
		if index.WeightMap[name] != at.file {
			return fault.New(fault.Corrupt, op, "tensor %s is in %s, %s says %q", name, at.file, weights.IndexFile, index.WeightMap[name])
		}
	}
	if len(index.WeightMap) != len(where) {
		return fault.New(fault.Corrupt, op, "%s names %d tensors, the files have %d", weights.IndexFile, len(index.WeightMap), len(where))
	}
	return nil
}
