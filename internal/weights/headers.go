package weights

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// CheckHeaders compares the headers of a model directory's safetensors files with its configuration: every tensor of the model is there once with its
// shape, and no foreign one. Elements are not read. found is false where the directory has no weights at all.
//
// Errors: Corrupt, naming the file and the tensor.
func CheckHeaders(dir string, c model.Config) (found bool, err error) {
	const op = "weights.CheckHeaders"
	files := os.DirFS(dir)
	missing := true
	for _, name := range []string{SingleFile, IndexFile} {
		if _, err := fs.Stat(files, name); err == nil {
			missing = false
		}
	}
	if missing {
		return false, nil
	}
	names, err := weightFiles(files, dir)
	if err != nil {
		return true, err
	}
	want := map[string]string{}
	for _, s := range c.Tensors() {
		want[s.Name] = fmt.Sprint(s.Shape)
	}
	in := map[string]string{}
	for _, name := range names {
		tensors, err := headerOf(files, name)
		if err != nil {
			return true, fault.New(fault.KindOf(err), op, "%s: %w", path.Join(dir, name), err).WithHint(fetchAgain)
		}
		for _, t := range tensors {
			shape, ok := want[t.Name]
			switch {
			case c.TieEmbedding && t.Name == "lm_head.weight":
				continue // some files have the tied head too
			case !ok:
				return true, fault.New(fault.Corrupt, op, "%s has a tensor %s that the model does not have", path.Join(dir, name), t.Name).WithHint(fetchAgain)
			case in[t.Name] != "":
				return true, fault.New(fault.Corrupt, op, "tensor %s is in %s and in %s", t.Name, in[t.Name], name).WithHint(fetchAgain)
			case shape != fmt.Sprint(t.Shape):
				return true, fault.New(fault.Corrupt, op, "%s: tensor %s has shape %v, config.json says %s", path.Join(dir, name), t.Name, t.Shape, shape).
					WithHint(fetchAgain)
			}
			in[t.Name] = name
		}
	}
	var absent []string
	for name := range want {
		if in[name] == "" {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		slices.Sort(absent)
		return true, fault.New(fault.Corrupt, op, "%s lacks %d tensors: %s", dir, len(absent), strings.Join(absent[:min(3, len(absent))], ", ")).WithHint(fetchAgain)
	}
	return true, nil
}

func headerOf(files fs.FS, name string) ([]Tensor, error) {
	f, err := openSource(files, name)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "weights.CheckHeaders", "%w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	return f.header()
}
