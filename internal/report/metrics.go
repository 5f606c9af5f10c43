package report

import (
	"strconv"

	"github.com/steadyrl/steady/internal/record"
)

// metric is one number of every step.
type metric struct {
	record.Metric
	s series
}

// metrics gathers the values of all steps, batch metrics first. A step without the record has no value.
func metrics(d *Data) []metric {
	var out []metric
	add := func(of func(s Step) any) {
		from := len(out)
		for _, m := range record.Metrics(of(Step{})) {
			out = append(out, metric{Metric: m})
		}
		for _, s := range d.Steps {
			for i, m := range record.Metrics(of(s)) {
				x := &out[from+i].s
				x.steps, x.vals = append(x.steps, s.Step), append(x.vals, m.Value)
			}
		}
	}
	add(func(s Step) any {
		if s.Batch == nil {
			return record.BatchMetrics{}
		}
		return *s.Batch
	})
	add(func(s Step) any {
		if s.Update == nil {
			return record.UpdateMetrics{}
		}
		return *s.Update
	})
	return out
}

func metricCharts(d *Data) []chart {
	if len(d.Steps) == 0 {
		return nil
	}
	var out []chart
	for _, m := range metrics(d) {
		m.s.class = "a"
		out = append(out, draw("c-"+m.Name, words(m.Name), m.Doc, unitOf(m.Name), small, []series{m.s}))
	}
	return out
}

// maxTable is the largest number of steps whose numbers are listed; longer runs have curves only.
const maxTable = 400

func stepTable(d *Data) *table {
	if len(d.Steps) == 0 || len(d.Steps) > maxTable {
		return nil
	}
	t := &table{Heads: []head{{"step", ""}}}
	all := metrics(d)
	for _, m := range all {
		t.Heads = append(t.Heads, head{m.Name, m.Doc})
	}
	for i, s := range d.Steps {
		r := tableRow{Name: strconv.Itoa(s.Step)}
		for _, m := range all {
			cell := "–"
			if v := m.s.vals[i]; v != nil {
				cell = number(*v)
			}
			r.Cells = append(r.Cells, cell)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
