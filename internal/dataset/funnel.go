package dataset

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Stage is a rule with the rows that it dropped and those that were left behind it.
type Stage struct {
	Reason  Reason
	Dropped int
	Left    int
}

// Count is the number of rows with a reason.
func (m *Manifest) Count(r Reason) int {
	for _, c := range m.Reasons {
		if c.Name == string(r) {
			return c.Rows
		}
	}
	return 0
}

// Funnel lists the rules that dropped a row, in their order.
func (m *Manifest) Funnel() []Stage {
	left := m.Rows
	var out []Stage
	for _, c := range m.Reasons {
		if Reason(c.Name) == Kept || c.Rows == 0 {
			continue
		}
		left -= c.Rows
		out = append(out, Stage{Reason(c.Name), c.Rows, left})
	}
	return out
}

// percent is a share of all rows; 0 of 0 is 0.
func (m *Manifest) percent(n int) float64 {
	if m.Rows == 0 {
		return 0
	}
	return 100 * float64(n) / float64(m.Rows)
}

// FunnelTable prints the funnel: rows, what every rule dropped and left, the splits, and the rows and kept rows of every source.
func (m *Manifest) FunnelTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "rule\tdropped\tleft\tof all\t\n")
	fmt.Fprintf(w, "rows\t\t%d\t%.1f %%\t\n", m.Rows, m.percent(m.Rows))
	for _, s := range m.Funnel() {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%\t\n", s.Reason, s.Dropped, s.Left, m.percent(s.Left))
	}
	fmt.Fprintf(w, "train\t\t%d\t%.1f %%\t\ndev\t\t%d\t%.1f %%\t\n", m.Train, m.percent(m.Train), m.Dev, m.percent(m.Dev))
	fmt.Fprintf(w, "\t\t\t\t\nsource\trows\tkept\t\t\n")
	for _, p := range m.Platforms {
		name := p.Name
		if name == "" {
			name = "(none)"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t\t\n", name, p.Rows, p.Kept)
	}
	return w.Flush()
}

// FunnelSVG draws the funnel: a bar for all rows, then for every rule what was left and, behind it, what it dropped.
func (m *Manifest) FunnelSVG(out io.Writer) error {
	const (
		labels, bars, numbers = 170, 520, 130
		row, bar              = 24, 16
	)
	stages := m.Funnel()
	var b strings.Builder
	height := (len(stages)+3)*row + 2*row
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13" role="img">`+"\n",
		labels+bars+numbers, height)
	fmt.Fprintf(&b, "<title>Of %d rows, %d are for training and %d for dev</title>\n", m.Rows, m.Train, m.Dev)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	y := row
	line := func(label string, left, dropped int, number string) {
		width := func(n int) float64 { return bars * m.percent(n) / 100 }
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-10, y+13, escape(label))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b6ea5"/>`, labels, y, width(left), bar)
		if dropped > 0 {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#d9a06b"/>`, labels+width(left), y, width(dropped), bar)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", labels+width(left+dropped)+6, y+13, escape(number))
		y += row
	}
	line("rows", m.Rows, 0, fmt.Sprint(m.Rows))
	for _, s := range stages {
		line(string(s.Reason), s.Left, s.Dropped, fmt.Sprintf("−%d, %d left", s.Dropped, s.Left))
	}
	line("train", m.Train, 0, fmt.Sprint(m.Train))
	line("dev", m.Dev, 0, fmt.Sprint(m.Dev))
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
