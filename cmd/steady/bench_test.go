package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/steadyrl/steady/internal/engine/measure"
)

// The CPU engine's figures are there, finite and positive where they are rates; a binary without the GPU engine says so.
func TestBenchEngine_printsRatesBesideTheRoofline(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"bench", "engine", "--json"}, &out, &errOut); code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut.String())
	}
	var figures []measure.Figure
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		t.Fatal(err)
	}
	bounded := 0
	for _, f := range figures {
		if f.Unit != "%" && !(f.Value > 0) {
			t.Errorf("%q is %v %s", f.Name, f.Value, f.Unit)
		}
		if f.Roofline > 0 {
			bounded++
		}
	}
	if bounded != 3 {
		t.Errorf("%d figures stand beside a roofline, want 3", bounded)
	}
}
