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

// headRow is the part of row that ReadHeads reads. Parquet matches columns by name.
type headRow struct {
	ProblemID     string  `parquet:"problem_id"`
	Problem       int32   `parquet:"problem"`
	Split         string  `parquet:"split"`
	Group         int32   `parquet:"group"`
	Sample        int32   `parquet:"sample"`
	Tag           int32   `parquet:"tag"`
	Submission    int32   `parquet:"submission"`
	PromptTokens  int32   `parquet:"prompt_tokens"`
	SampledTokens int32   `parquet:"sampled_tokens"`
	End           string  `parquet:"end"`
	Turns         string  `parquet:"turns"`
	Seconds       float64 `parquet:"seconds"`
	TopK          int32   `parquet:"top_k"`
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
				Key: Key{
					ProblemID: h.ProblemID, Problem: int(h.Problem), Split: h.Split, Group: int(h.Group), Sample: int(h.Sample),
					Tag: int(h.Tag), Submission: int(h.Submission),
				},
				End: End(h.End), Seconds: h.Seconds, Prompt: int(h.PromptTokens), Sampled: int(h.SampledTokens), TopK: int(h.TopK),
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
