package trajectory

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
)

// Head is what a file says of a trajectory without its tokens.
type Head struct {
	Key
	Turns           []Turn
	End             End
	Seconds         float64
	Prompt, Sampled int // tokens
	TopK            int
}

// ReadHeads reads the heads of a file of size bytes, in order. It reads the small columns only, which are a few hundred bytes
// a trajectory where the tokens and their records are megabytes. So it cannot compare the digest of the rows: who needs the tokens,
// or certainty, uses Read. Errors: Corrupt.
func ReadHeads(r io.ReaderAt, size int64) (heads []Head, err error) {
	const op = "trajectory.ReadHeads"
	defer corrupt(&err)
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(4<<10))
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	rows := parquet.NewGenericReader[headRow](f)
	defer rows.Close()
	buf := make([]headRow, 8)
	for {
		n, err := rows.Read(buf)
		for _, h := range buf[:n] {
			head := Head{
				Key: h.key(), End: End(h.End), Seconds: h.Seconds, Prompt: int(h.PromptTokens), Sampled: int(h.SampledTokens), TopK: int(h.TopK),
			}
			if err := json.Unmarshal([]byte(h.Turns), &head.Turns); err != nil {
				return nil, fault.New(fault.Corrupt, op, "turns: %w", err)
			}
			heads = append(heads, head)
		}
		switch {
		case errors.Is(err, io.EOF):
			return heads, nil
		case err != nil:
			return nil, fault.New(fault.Corrupt, op, "%w", err)
		case n == 0:
			return nil, fault.New(fault.Corrupt, op, "the file ends before its last row")
		}
	}
}
