package scalars

import (
	"encoding/csv"
	"io"
	"strconv"

	"github.com/steadyrl/steady/internal/fault"
)

// WriteCSV writes a line of column names and a line for every row. Numbers have as many digits as they need to be read back as they
// are; an absent value is an empty cell. Lines end with LF.
func (t *Table) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	var line []string
	for _, c := range Columns() {
		line = append(line, c.Name)
	}
	err := w.Write(line)
	for _, r := range t.Rows {
		if err != nil {
			break
		}
		line = line[:0]
		for _, c := range r.Cells {
			line = append(line, text(c))
		}
		err = w.Write(line)
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	if err != nil {
		return fault.New(fault.Busy, "scalars.WriteCSV", "%w", err)
	}
	return nil
}

func text(c Cell) string {
	switch v := c.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}
