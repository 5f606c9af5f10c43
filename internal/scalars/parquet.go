package scalars

import (
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/steadyrl/steady/internal/fault"
)

// WriteParquet writes the table as one Parquet file. Columns are optional UTF-8 strings, 64-bit integers and doubles; an absent value is
// a null. The metadata of the file explains every column under the key "doc:" and its name.
func (t *Table) WriteParquet(out io.Writer) error {
	columns := Columns()
	options := []parquet.WriterOption{schema(columns), parquet.CreatedBy("steady", "1", "1"), parquet.Compression(&parquet.Snappy)}
	for _, c := range columns {
		options = append(options, parquet.KeyValueMetadata("doc:"+c.Name, c.Doc))
	}
	w := parquet.NewGenericWriter[any](out, options...)
	rows := make([]parquet.Row, len(t.Rows))
	for i, r := range t.Rows {
		for k, c := range r.Cells {
			v := parquet.NullValue().Level(0, 0, k)
			if c != nil {
				v = parquet.ValueOf(c).Level(0, 1, k)
			}
			rows[i] = append(rows[i], v)
		}
	}
	_, err := w.WriteRows(rows)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fault.New(fault.Busy, "scalars.WriteParquet", "%w", err)
	}
	return nil
}

// schema has the columns in their order; a parquet.Group would sort them.
func schema(columns []Column) *parquet.Schema {
	types := map[Type]reflect.Type{Text: reflect.TypeFor[*string](), Integer: reflect.TypeFor[*int64](), Number: reflect.TypeFor[*float64]()}
	var fields []reflect.StructField
	for i, c := range columns {
		fields = append(fields, reflect.StructField{
			Name: "C" + text(int64(i)), Type: types[c.Type], Tag: reflect.StructTag(`parquet:"` + c.Name + `,optional"`),
		})
	}
	return parquet.NewSchema("steps", parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface()))
}
