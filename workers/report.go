package workers

import (
	"bytes"
	"context"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/report"
)

// renderReport renders the report of a lineage from its records.
func renderReport(ctx context.Context, s artifact.Store, l layout) ([]byte, error) {
	d, err := report.Load(ctx, s, l)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := report.Render(&page, d); err != nil {
		return nil, err
	}
	return page.Bytes(), nil
}
