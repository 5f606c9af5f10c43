package ref_test

import (
	"testing"

	"github.com/steadyrl/steady/internal/engine/enginetest"
	"github.com/steadyrl/steady/internal/engine/ref"
)

func TestRef_conforms(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Backend{
		NewSampler: ref.NewSampler, NewTrainer: ref.NewTrainer, Unit: enginetest.Float64,
	})
}
