package obs

import (
	"context"

	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/contract"
)

// Chain returns the fields of a chain: run, lineage, step, group, unit, those that it has.
func Chain(c contract.Chain) []zap.Field {
	var out []zap.Field
	if c.Run != "" {
		out = append(out, zap.String("run", c.Run))
	}
	if c.Lineage != "" {
		out = append(out, zap.String("lineage", c.Lineage))
	}
	if c.Step != nil {
		out = append(out, zap.Int("step", *c.Step))
	}
	if c.Group != nil {
		out = append(out, zap.Int("group", *c.Group))
	}
	if c.Unit != "" {
		out = append(out, zap.String("unit", c.Unit))
	}
	return out
}

type logger struct{}

// Into returns a context that carries l.
func Into(ctx context.Context, l *zap.Logger) context.Context {
	return context.WithValue(ctx, logger{}, l)
}

// From returns the logger of a context: in an activity one whose lines have the chain of ids. Without one it is silent.
func From(ctx context.Context) *zap.Logger {
	if l, ok := ctx.Value(logger{}).(*zap.Logger); ok {
		return l
	}
	return Quiet()
}

// FromOr is From with another logger for a context without one; nil is a silent one.
func FromOr(ctx context.Context, l *zap.Logger) *zap.Logger {
	if ctx.Value(logger{}) != nil || l == nil {
		return From(ctx)
	}
	return l
}

// Quiet is a logger that writes nothing.
func Quiet() *zap.Logger { return zap.NewNop() }
