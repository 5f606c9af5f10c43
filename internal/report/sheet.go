package report

import (
	"html/template"
	"io"

	"github.com/steadyrl/steady/internal/fault"
)

// Sheet is what people see of simulated runs: tables, and curves over steps or over a parameter.
type Sheet struct {
	Title, Subtitle string
	Tables          []SheetTable
	Curves          []Curve
}

// SheetTable is a table. Heads may be missing; Words says that the cells are texts and not numbers.
type SheetTable struct {
	Title, Note string
	Heads       []string
	Rows        [][]string
	Words       bool
}

// Curve is a chart of at most four lines over whole numbers.
type Curve struct {
	Title, Doc, Unit string
	X                string // what the numbers are
	Scale            float64
	At               []int
	Lines            []CurveLine
}

// CurveLine has a value for each number of its curve.
type CurveLine struct {
	Name   string
	Values []float64
}

// curveClasses are the looks of the lines.
var curveClasses = []string{"a", "b", "c", "d"}

// RenderSheet writes the page. The same sheet gives the same bytes. Errors: those of w, and Invalid for a curve of too many lines.
func RenderSheet(w io.Writer, p Sheet) error {
	view := struct {
		Sheet
		Style  template.CSS
		Charts []chart
	}{Sheet: p, Style: pageStyle}
	for i, c := range p.Curves {
		if len(c.Lines) > len(curveClasses) {
			return fault.New(fault.Invalid, "report.RenderSheet", "%s has %d lines, at most %d can be told apart", c.Title, len(c.Lines), len(curveClasses))
		}
		var lines []series
		for j, l := range c.Lines {
			s := series{name: l.Name, class: curveClasses[j], steps: c.At, x: c.X}
			for k := range l.Values {
				s.vals = append(s.vals, &l.Values[k])
			}
			lines = append(lines, s)
		}
		one := draw("sheet-"+integer(i), c.Title, c.Doc, unit{c.Unit, c.Scale}, small, lines)
		one.XLabel = c.X
		view.Charts = append(view.Charts, one)
	}
	if err := sheetTemplate.ExecuteTemplate(w, "sheet.html", view); err != nil {
		return fault.New(fault.Internal, "report.RenderSheet", "%w", err)
	}
	return nil
}
