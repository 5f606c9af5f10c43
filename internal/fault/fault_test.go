package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
)

func TestKindOf_outermostErrorWins(t *testing.T) {
	t.Parallel()
	inner := fault.New(fault.Corrupt, "a.B", "bad magic: %w", io.ErrUnexpectedEOF).WithHint("restore %s", "x")
	outer := &fault.Error{Kind: fault.NotFound, Op: "c.D", Err: fmt.Errorf("layer: %w", inner)}
	tests := []struct {
		name     string
		err      error
		want     fault.Kind
		wantHint string
	}{
		{"nil", nil, "", ""},
		{"plain", errors.New("x"), fault.Internal, ""},
		{"context", context.Canceled, fault.Internal, ""},
		{"direct", inner, fault.Corrupt, "restore x"},
		{"wrapped by fmt", fmt.Errorf("op: %w", inner), fault.Corrupt, "restore x"},
		{"wrapped by another kind keeps the inner hint", outer, fault.NotFound, "restore x"},
	}
	for _, tt := range tests {
		if got := fault.KindOf(tt.err); got != tt.want {
			t.Errorf("%s: KindOf = %q, want %q", tt.name, got, tt.want)
		}
		if got := fault.HintOf(tt.err); got != tt.wantHint {
			t.Errorf("%s: HintOf = %q, want %q", tt.name, got, tt.wantHint)
		}
	}
	if !errors.Is(outer, io.ErrUnexpectedEOF) {
		t.Error("the cause at the end of the chain must stay visible to errors.Is")
	}
}

func TestKinds_everyKindIsClassified(t *testing.T) {
	t.Parallel()
	retryable := 0
	for _, k := range fault.Kinds() {
		if k.Retryable() {
			retryable++
		}
	}
	if len(fault.Kinds()) != 10 || retryable != 4 {
		t.Errorf("kinds = %d, retryable = %d; a new kind needs a decision here and in activities/errors.go", len(fault.Kinds()), retryable)
	}
}
