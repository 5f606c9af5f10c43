package trajectory

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
)

type row struct {
	ProblemID     string    `parquet:"problem_id"`
	Problem       int32     `parquet:"problem"`
	Split         string    `parquet:"split"`
	Group         int32     `parquet:"group"`
	Sample        int32     `parquet:"sample"`
	Tag           int32     `parquet:"tag"`
	Submission    int32     `parquet:"submission"`
	PromptTokens  int32     `parquet:"prompt_tokens"`
	SampledTokens int32     `parquet:"sampled_tokens"`
	End           string    `parquet:"end"`
	Turns         string    `parquet:"turns"`
	Seconds       float64   `parquet:"seconds"`
	TopK          int32     `parquet:"top_k"`
	IDs           []int32   `parquet:"ids,list"`
	Mask          []bool    `parquet:"mask,list"`
	LogProbs      []float32 `parquet:"log_probs,list"`
	Entropies     []float32 `parquet:"entropies,list"`
	Versions      []int32   `parquet:"versions,list"`
	Turn          []int32   `parquet:"turn_index,list"`
	HeadIDs       []byte    `parquet:"head_ids,snappy"`
	HeadLogProbs  []byte    `parquet:"head_log_probs,snappy"`
}

// Encode returns the bytes of a file of trajectories, in order. Determinism: a function of the trajectories.
func Encode(ts []*Trajectory) ([]byte, error) {
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[row](&buf, parquet.CreatedBy("steady", "1", "1"), parquet.MaxRowsPerRowGroup(256))
	for _, t := range ts {
		r, err := t.row()
		if err != nil {
			return nil, err
		}
		if _, err := w.Write([]row{r}); err != nil {
			return nil, fault.New(fault.Internal, "trajectory.Encode", "%w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fault.New(fault.Internal, "trajectory.Encode", "%w", err)
	}
	return buf.Bytes(), nil
}

func (t *Trajectory) row() (row, error) {
	if err := t.Check(); err != nil {
		return row{}, err
	}
	turns, err := json.Marshal(t.Turns)
	if err != nil {
		return row{}, fault.New(fault.Numeric, "trajectory.Encode", "turns: %w", err)
	}
	r := row{
		ProblemID: t.ProblemID, Problem: int32(t.Problem), Split: t.Split, Group: int32(t.Group), Sample: int32(t.Sample), //nolint:gosec // small
		Tag: int32(t.Tag), Submission: int32(t.Submission), PromptTokens: int32(t.prompt), SampledTokens: int32(t.sampled), //nolint:gosec // small
		End: string(t.End), Turns: string(turns), Seconds: t.Seconds, TopK: int32(t.topK), //nolint:gosec // small
		IDs: t.ids, Mask: t.mask, LogProbs: t.logProbs, Entropies: t.entropies, Versions: t.versions, Turn: t.turn,
		HeadIDs: make([]byte, 0, 4*len(t.headIDs)), HeadLogProbs: make([]byte, 0, 4*len(t.headLPs)),
	}
	for _, id := range t.headIDs {
		r.HeadIDs = binary.LittleEndian.AppendUint32(r.HeadIDs, uint32(id)) //nolint:gosec // same bits
	}
	for _, lp := range t.headLPs {
		r.HeadLogProbs = binary.LittleEndian.AppendUint32(r.HeadLogProbs, math.Float32bits(lp))
	}
	return r, nil
}

// Decode reads a file of trajectories and checks it. Errors: Corrupt.
func Decode(data []byte) (ts []*Trajectory, err error) {
	const op = "trajectory.Decode"
	defer func() {
		// The Parquet reader may panic on pages that are not what the footer says.
		if p := recover(); p != nil {
			ts, err = nil, fault.New(fault.Corrupt, op, "%v", p)
		}
	}()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fault.New(fault.Corrupt, op, "%w", err)
	}
	r := parquet.NewGenericReader[row](f)
	defer r.Close()
	buf := make([]row, 1)
	for {
		buf[0] = row{}
		n, err := r.Read(buf)
		if n == 1 {
			t, terr := buf[0].trajectory()
			if terr != nil {
				return nil, terr
			}
			ts = append(ts, t)
		}
		if errors.Is(err, io.EOF) {
			return ts, nil
		}
		if err != nil {
			return nil, fault.New(fault.Corrupt, op, "%w", err)
		}
	}
}

func (r row) trajectory() (*Trajectory, error) {
	t := &Trajectory{
		Key: Key{
			ProblemID: r.ProblemID, Problem: int(r.Problem), Split: r.Split, Group: int(r.Group), Sample: int(r.Sample),
			Tag: int(r.Tag), Submission: int(r.Submission),
		},
		End: End(r.End), Seconds: r.Seconds, topK: int(r.TopK), prompt: int(r.PromptTokens), sampled: int(r.SampledTokens),
		ids: r.IDs, mask: r.Mask, logProbs: r.LogProbs, entropies: r.Entropies, versions: r.Versions, turn: r.Turn,
		headIDs: make([]int32, len(r.HeadIDs)/4), headLPs: make([]float32, len(r.HeadLogProbs)/4),
	}
	if len(r.HeadIDs) != len(r.HeadLogProbs) || len(r.HeadIDs)%4 != 0 {
		return nil, fault.New(fault.Corrupt, "trajectory.Decode", "records of %d and %d bytes", len(r.HeadIDs), len(r.HeadLogProbs))
	}
	for i := range t.headIDs {
		t.headIDs[i] = int32(binary.LittleEndian.Uint32(r.HeadIDs[4*i:])) //nolint:gosec // same bits
		t.headLPs[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.HeadLogProbs[4*i:]))
	}
	if err := json.Unmarshal([]byte(r.Turns), &t.Turns); err != nil {
		return nil, fault.New(fault.Corrupt, "trajectory.Decode", "turns: %w", err)
	}
	return t, t.Check()
}
