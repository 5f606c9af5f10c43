package report

import (
	"embed"
	"html/template"
	"io"

	"github.com/steadyrl/steady/internal/fault"
)

//go:embed page.html sheet.html style.css
var assets embed.FS

var (
	pageTemplate  = template.Must(template.ParseFS(assets, "page.html"))
	sheetTemplate = template.Must(template.ParseFS(assets, "sheet.html", "page.html")) // the chart is the page's
	pageStyle     = template.CSS(mustRead("style.css"))                                //nolint:gosec // our own style sheet, a constant
)

func mustRead(name string) string {
	data, err := assets.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded: this cannot happen in a program that was built
	}
	return string(data)
}

// Render writes the page. The same data gives the same bytes. Errors: those of w.
func Render(w io.Writer, d *Data) error {
	if err := pageTemplate.ExecuteTemplate(w, "page.html", newPage(d)); err != nil {
		return fault.New(fault.Internal, "report.Render", "%w", err)
	}
	return nil
}
