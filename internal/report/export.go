package report

import (
	"fmt"
	"math"

	"github.com/steadyrl/steady/internal/export"
	"github.com/steadyrl/steady/internal/fault"
)

// export reads the certificate. A damaged one is shown as an export that is not verified.
func (ld *loader) export() error {
	data, _, err := ld.store.Get(ld.ctx, ld.l.Export()+"/"+export.CertificateFile)
	if err != nil {
		return err
	}
	c, err := export.ParseCertificate(data)
	if fault.Is(err, fault.Corrupt) {
		ld.d.Export = &Export{Checks: []Check{{Name: "certificate", Detail: "the certificate is damaged or was changed after it was written"}}}
		return nil
	}
	if err != nil {
		return err
	}
	ld.d.Export = newCertificate(c, ld.d.Steps)
	return nil
}

// newCertificate restates a sealed certificate as checks. The digest is compared with the result of its step.
func newCertificate(c export.Certificate, steps []Step) *Export {
	e := &Export{Digest: c.WeightsDigest, Tensors: len(c.Tensors), Bytes: c.TotalBytes, Step: c.Step, Parameters: c.Parameters}
	add := func(name string, passed bool, format string, args ...any) {
		e.Checks = append(e.Checks, Check{Name: name, Passed: passed, Detail: fmt.Sprintf(format, args...)})
	}
	finite, rounded := 0, 0
	for _, t := range c.Tensors {
		if t.Finite {
			finite++
		}
		if t.Rounded {
			rounded++
		}
	}
	n := len(c.Tensors)
	add("certificate", true, "its seal holds; %s listed with their digests", plural(len(c.Files), "file", "files"))
	add("finite values", n > 0 && finite == n, "%s of %s", integer(finite), plural(n, "tensor", "tensors"))
	add("equal to the BF16 rounding of the FP32 source", n > 0 && rounded == n, "%s of %s", integer(rounded), plural(n, "tensor", "tensors"))
	add("tokenizer loads from the exported files", c.Tokenizer.Tokens > 0, "%s", plural(c.Tokenizer.Tokens, "token", "tokens"))
	passes := len(c.Forward.LogProbs) > 0 && len(c.Forward.LogProbs) == len(c.Forward.Tokens)-1
	for _, lp := range c.Forward.LogProbs {
		passes = passes && !math.IsNaN(float64(lp)) && !math.IsInf(float64(lp), 0)
	}
	add("forward pass from the exported files", passes, "%s", plural(len(c.Forward.LogProbs), "log-probability", "log-probabilities"))
	for _, s := range steps {
		if s.Step == c.Step && s.WeightsDigest != "" {
			add("weights equal the version published at the step", s.WeightsDigest == c.WeightsDigest, "step %d", c.Step)
		}
	}
	e.Verified = true
	for _, k := range e.Checks {
		e.Verified = e.Verified && k.Passed
	}
	return e
}
