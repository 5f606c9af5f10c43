package artifact

import (
	"context"

	"github.com/steadyrl/steady/internal/fault"
)

// Guard returns a store that writes and removes only names that may allows; others are Internal. It keeps a mistake in one role from reaching
// what other roles own. Against a hostile process the store itself has to refuse.
func Guard(s Store, role string, may func(name string) bool) Store {
	return &guarded{Store: s, role: role, may: may}
}

type guarded struct {
	Store
	role string
	may  func(name string) bool
}

func (g *guarded) check(name string) error {
	if g.may(name) {
		return nil
	}
	return fault.New(fault.Internal, "artifact.Guard", "a worker of the role %s may not write %s", g.role, name).
		WithHint("this is a fault of the program: report it")
}

// Put implements Store.
func (g *guarded) Put(ctx context.Context, name string, data []byte) (Ref, error) {
	if err := g.check(name); err != nil {
		return Ref{}, err
	}
	return g.Store.Put(ctx, name, data)
}

// Replace implements Store.
func (g *guarded) Replace(ctx context.Context, name string, data []byte) (Ref, error) {
	if err := g.check(name); err != nil {
		return Ref{}, err
	}
	return g.Store.Replace(ctx, name, data)
}

// Remove implements Store.
func (g *guarded) Remove(ctx context.Context, name string) error {
	if err := g.check(name); err != nil {
		return err
	}
	return g.Store.Remove(ctx, name)
}

// Build implements Store.
func (g *guarded) Build(ctx context.Context, name string, build func(dir string) error) error {
	if err := g.check(name); err != nil {
		return err
	}
	return g.Store.Build(ctx, name, build)
}

// Aside implements Store.
func (g *guarded) Aside(ctx context.Context, name string) error {
	if err := g.check(name); err != nil {
		return err
	}
	return g.Store.Aside(ctx, name)
}
