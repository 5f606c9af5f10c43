package fault

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// Text is the text of an error for a person: without the functions that met it, at any depth of the chain, unless the cause is unknown (Internal), and
// without the names of types of the language. Joined errors have a line each.
func Text(err error) string {
	switch e := err.(type) { //nolint:errorlint // one layer after the other
	case nil:
		return ""
	case *Error:
		switch {
		case e.Err == nil:
			return e.Op
		case e.Kind == Internal && e.Op != "":
			return e.Op + ": " + Text(e.Err)
		}
		return Text(e.Err)
	case *json.UnmarshalTypeError:
		return wrongType(e)
	case *strconv.NumError:
		return strconv.Quote(e.Num) + " is no number that can be used here"
	case interface{ Unwrap() []error }:
		return replace(err.Error(), e.Unwrap()...)
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return replace(err.Error(), inner)
		}
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// Parts takes joined errors apart. A sentence with several causes is not a join.
func Parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only a join at the top is taken apart
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, Parts(e)...)
	}
	return out
}

// replace puts the texts of causes for a person where their own stand in text, in their order. A cause whose text is not there is left out.
func replace(text string, causes ...error) string {
	var done strings.Builder
	for i, cause := range causes {
		if cause == nil {
			continue
		}
		old := cause.Error()
		at := strings.Index(text, old)
		if i == len(causes)-1 {
			at = strings.LastIndex(text, old) // a cause stands at the end, and what is before it may look like it
		}
		if at < 0 || old == "" {
			continue
		}
		done.WriteString(text[:at])
		done.WriteString(Text(cause))
		text = text[at+len(old):]
	}
	return done.String() + text
}

// keys is the path of a field without the names of embedded types, which begin with a capital; the last part is always a key.
func keys(path string) string {
	parts := strings.Split(path, ".")
	var out []string
	for i, p := range parts {
		if i == len(parts)-1 || p == "" || p[0] < 'A' || p[0] > 'Z' {
			out = append(out, p)
		}
	}
	return strings.Join(out, ".")
}

// wrongType says of a JSON value that it has another type than its reader wants.
func wrongType(e *json.UnmarshalTypeError) string {
	what := "the value"
	if e.Field != "" {
		what = strconv.Quote(keys(e.Field))
	}
	is, ok := map[string]string{"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}[e.Value]
	if !ok { // "number 1.5"
		is = e.Value
		if number, cut := strings.CutPrefix(is, "number "); cut {
			is = number
		}
	}
	t := e.Type
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := "another kind of value"
	if t != nil {
		switch t.Kind() {
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			want = "a whole number"
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			want = "a whole number that is not negative"
		case reflect.Float32, reflect.Float64:
			want = "a number"
		case reflect.String:
			want = "a text"
		case reflect.Bool:
			want = "true or false"
		case reflect.Slice, reflect.Array:
			want = "a list"
		case reflect.Struct, reflect.Map:
			want = "an object"
		}
	}
	return what + " is " + is + ", want " + want + " (byte " + strconv.FormatInt(e.Offset, 10) + ")"
}
