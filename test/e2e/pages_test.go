//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/testutil"
	"github.com/steadyrl/steady/internal/testutil/page"
)

// The blocks with the mark "run: server" do what they say, page after page, beside one `steady dev`.
func TestPages_runTheirBlocksBesideAServer(t *testing.T) {
	s := open(t)
	page.Mount(t, testutil.Root(), s.dir)
	if err := os.Symlink(s.data(), filepath.Join(s.dir, ".steady")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{s.steady, s.cli} {
		if err := os.Symlink(program, filepath.Join(s.dir, "bin", filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := page.All(testutil.Root())
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Mark != page.Server {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.Text)
			cmd.Dir = s.dir
			cmd.Env = append(os.Environ(), fmt.Sprintf("TEMPORAL_ADDRESS=127.0.0.1:%d", s.port), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			cancel()
			if err != nil {
				t.Fatalf("%s: %v\n%s\n%s", b.Where(), err, b.Text, out)
			}
			ran++
		}
	}
	if ran < 5 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// The table with which the pages' commands of temporal are checked, without a server, is true of the real program.
func TestPages_temporalHasTheseFlags(t *testing.T) {
	cli := testutil.Binary(t, "temporal")
	help := func(args ...string) string {
		t.Helper()
		out, _, err := testutil.Run(t.Context(), cli, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	global := help("options")
	for command, flags := range page.TemporalFlags() {
		text := help(append(strings.Fields(command), "--help")...)
		if !strings.Contains(text, "temporal "+command) {
			t.Errorf("temporal has no command %s:\n%s", command, text)
		}
		known := regexp.MustCompile(`(^|[\s,])(--?[a-z-]+)`).FindAllStringSubmatch(text+global, -1)
		for _, flag := range flags {
			if !slices.ContainsFunc(known, func(m []string) bool { return m[2] == flag }) {
				t.Errorf("temporal %s has no flag %s", command, flag)
			}
		}
	}
}
