package demo

import (
	"bytes"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/dataset"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/rng"
)

// Seed is the seed of the bundled files.
const Seed = 42

// Parquet generates the shard of a seed: the ordinary problems and the quirks, shuffled, but quirks in their order.
// The bundled file is Parquet(Seed).
func Parquet(seed uint64) ([]byte, error) {
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[dataset.Row](&buf, parquet.CreatedBy("steady", "1", "1"), parquet.Compression(&parquet.Snappy))
	if _, err := w.Write(rows(seed)); err != nil {
		return nil, fault.New(fault.Internal, "demo.Parquet", "%w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fault.New(fault.Internal, "demo.Parquet", "%w", err)
	}
	return buf.Bytes(), nil
}

func rows(seed uint64) []dataset.Row {
	ordinary, odd := problems(seed), quirks()
	var out []dataset.Row
	s := &source{stream: rng.New(seed, rng.Corpus, "shuffle")}
	for o, q := 0, 0; o < len(ordinary) || q < len(odd); {
		// Both run out at about the same time.
		if s.pick(len(ordinary)-o, len(odd)-q) == 0 {
			out = append(out, ordinary[o].row(o))
			o++
		} else {
			out = append(out, odd[q].row)
			q++
		}
	}
	return out
}
