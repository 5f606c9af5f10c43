package lcb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
)

// Files are the files of release_v6, in their order; release_vN has the first N.
func Files() []string {
	return []string{"test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"}
}

// ReleaseRows is the number of problems of release_v6.
const ReleaseRows = 1055

// ReadDir gives the problems of the files of a directory to each, with the file's name, and returns the files that are missing. Errors: NotFound (none of the files
// is there), those of Read, naming the file, and the context's.
func ReadDir(ctx context.Context, dir string, o Options, each func(file string, p *Problem) error) (missing []string, err error) {
	missing, err = readFiles(ctx, dir, Files(), o, each)
	if len(missing) == len(Files()) {
		return nil, noFiles(dir, missing[0])
	}
	return missing, err
}

func noFiles(dir, name string) error {
	return fault.New(fault.NotFound, "lcb.ReadDir", "%s has none of LiveCodeBench's files, such as %s", dir, name).
		WithHint("give the directory of livecodebench/code_generation_lite")
}

// present wants all of the files. Errors: NotFound.
func present(dir string, names []string) error {
	for _, name := range names {
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.NotFound, "lcb.Open", "%s has no %s", dir, name).
				WithHint("give the directory of livecodebench/code_generation_lite, or an earlier release, which has fewer files")
		}
		if err != nil {
			return fault.New(fault.Invalid, "lcb.Open", "%w", err)
		}
	}
	return nil
}

// readFiles is ReadDir for some of the files, of which all may be missing.
func readFiles(ctx context.Context, dir string, names []string, o Options, each func(file string, p *Problem) error) (missing []string, err error) {
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
			continue
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "lcb.ReadDir", "%w", err)
		}
		err = Read(dataset.ContextReader(ctx, f), o, func(p *Problem) error { return each(name, p) })
		_ = f.Close() // only read
		if err != nil {
			return nil, fault.New(fault.KindOf(err), "lcb.ReadDir", "%s: %w", name, err).WithHint("%s", fault.HintOf(err))
		}
	}
	return missing, nil
}
