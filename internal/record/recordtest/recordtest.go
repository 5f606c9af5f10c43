// Package recordtest leaves records of invented runs that belong to each other as those of a real one do.
package recordtest

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// PutStep leaves the sealed batch and the result of a step. The result gets the digest of the batch and the seal of the result of the step before, if
// there is one.
func PutStep(tb testing.TB, s artifact.Store, l record.Layout, b record.Sealed, r record.Result) {
	tb.Helper()
	ref, err := artifact.PutJSON(tb.Context(), s, l.Batch(b.Step), b)
	if err != nil {
		tb.Fatal(err)
	}
	r.Step, r.BatchDigest = b.Step, ref.Digest
	_, seal, err := artifact.GetSealed(tb.Context(), s, l.Result(b.Step-1), nil)
	if err != nil && !fault.Is(err, fault.NotFound) {
		tb.Fatal(err)
	}
	r.Previous = seal
	if _, err := artifact.PutJSON(tb.Context(), s, l.Result(b.Step), r); err != nil {
		tb.Fatal(err)
	}
}

var digits = regexp.MustCompile(`: -?[0-9]`)

// ChangeNumber changes one digit of a number in a record, which stays a document of the same form, and reports whether it has a number.
func ChangeNumber(tb testing.TB, s artifact.Store, name string) bool {
	tb.Helper()
	data, _, err := s.Get(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	data = bytes.Clone(data)
	all := digits.FindAllIndex(data, -1)
	if all == nil {
		return false
	}
	at := all[len(all)-1][1] - 1
	data[at] = '1' + (data[at]-'0')%9 // no zero in front
	if _, err := s.Replace(tb.Context(), name, data); err != nil {
		tb.Fatal(err)
	}
	return true
}
