package artifact_test

import (
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/artifact/artifacttest"
	"github.com/steadyrl/steady/internal/fault"
)

// A guard that allows everything is a store like any other.
func TestGuard_conformance(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T) artifact.Store {
		return artifact.Guard(newFiles(t), "any", func(string) bool { return true })
	})
}

func TestGuard_refusesEveryWayToWrite(t *testing.T) {
	t.Parallel()
	s := newFiles(t)
	ctx := t.Context()
	for _, name := range []string{"mine/o", "theirs/o"} {
		if _, err := s.Put(ctx, name, []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	g := artifact.Guard(s, "judge", func(name string) bool { return strings.HasPrefix(name, "mine/") })
	build := func(string) error {
		t.Error("the directory was built")
		return nil
	}
	for what, err := range map[string]error{
		"Put":     second(g.Put(ctx, "theirs/new", []byte("x"))),
		"Replace": second(g.Replace(ctx, "theirs/o", []byte("x"))),
		"Remove":  g.Remove(ctx, "theirs/o"),
		"Build":   g.Build(ctx, "theirs/d", build),
		"Aside":   g.Aside(ctx, "theirs"),
	} {
		if !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "judge") {
			t.Errorf("%s: %v, want Internal", what, err)
		}
	}
	for what, err := range map[string]error{
		"Put":     second(g.Put(ctx, "mine/new", []byte("x"))),
		"Replace": second(g.Replace(ctx, "mine/o", []byte("x"))),
		"Remove":  g.Remove(ctx, "mine/new"),
	} {
		if err != nil {
			t.Errorf("%s of what is allowed: %v", what, err)
		}
	}
	if data, _, err := g.Get(ctx, "theirs/o"); err != nil || string(data) != "old" {
		t.Errorf("Get of what others own: %q, %v", data, err)
	}
}

func second(_ artifact.Ref, err error) error { return err }
