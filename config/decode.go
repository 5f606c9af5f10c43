package config

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Sources says where each value came from, by the dotted name of its key. A key without an entry has its
// default.
type Sources map[string]string

// Of returns the source of key.
func (s Sources) Of(key string) string {
	if v, ok := s[key]; ok {
		return v
	}
	return "default"
}

// layer is one document that is laid over a Config.
type layer struct {
	name     string // "recipe demo", "file run.yaml", "--set a.b=c", "input"
	lines    bool   // positions mean something to the reader
	sources  Sources
	problems []string
}

func (l *layer) problem(n *yaml.Node, key, format string, args ...any) {
	where := l.name
	if l.lines && n != nil && n.Line > 0 {
		where = fmt.Sprintf("%s, line %d", l.name, n.Line)
	}
	if key == "" {
		key = "configuration"
	}
	l.problems = append(l.problems, fmt.Sprintf("%s: %s (%s)", key, fmt.Sprintf(format, args...), where))
}

// parse reads exactly one document; none at all yields nil.
func (l *layer) parse(text string) *yaml.Node {
	loader, err := yaml.NewLoader(strings.NewReader(text))
	if err != nil {
		l.broken(err)
		return nil
	}
	var doc, more yaml.Node
	if err := loader.Load(&doc); err != nil {
		if err != io.EOF {
			l.broken(err)
		}
		return nil
	}
	if err := loader.Load(&more); err != io.EOF {
		if err != nil {
			l.broken(err)
		} else {
			l.problem(&more, "", "one document expected, a second one follows")
		}
		return nil
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		return doc.Content[0]
	}
	return &doc
}

// broken says where a text stops being YAML and why, and nothing of the text: whoever names a wrong file does not want it shown.
func (l *layer) broken(err error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		l.problem(nil, "", "not YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	why := e.Message
	if strings.Contains(why, "anchor") { // the message has its name
		why = "anchors and aliases are not supported"
	}
	if e.Mark.Line > 0 {
		why += fmt.Sprintf(", at column %d", e.Mark.Column)
	}
	l.problem(&yaml.Node{Line: e.Mark.Line}, "", "not YAML: %s", why)
}

// apply lays node over the value of key.
func (l *layer) apply(node *yaml.Node, v reflect.Value, key string) {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		l.problem(node, key, "anchors and aliases are not supported")
	case v.Kind() == reflect.Struct:
		l.applyStruct(node, v, key)
	case v.Kind() == reflect.Slice:
		l.applyList(node, v, key)
	default:
		l.applyScalar(node, v, key)
	}
}

func (l *layer) applyStruct(node *yaml.Node, v reflect.Value, key string) {
	if isNull(node) {
		return // a section with nothing under it keeps its values
	}
	if node.Kind != yaml.MappingNode {
		got := describe(node)
		if key == "" {
			got = kindOf(node)
		}
		l.problem(node, key, "want keys and values, got %s", got)
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		full := join(key, name.Value)
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name.Value })
		switch {
		case name.Kind != yaml.ScalarNode || at < 0:
			l.problem(name, join(key, short(name.Value)), "unknown key%s", suggest(name.Value, fields))
		case seen[name.Value]:
			l.problem(name, full, "given twice")
		default:
			seen[name.Value] = true
			l.apply(value, v.Field(fields[at].index), full)
		}
	}
}

func (l *layer) applyList(node *yaml.Node, v reflect.Value, key string) {
	if node.Kind != yaml.SequenceNode {
		l.problem(node, key, "want a list, got %s", describe(node))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	before := len(l.problems)
	for i, item := range node.Content {
		l.apply(item, list.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
	if len(l.problems) == before {
		v.Set(list)
		l.mark(node, key)
	}
}

func (l *layer) applyScalar(node *yaml.Node, v reflect.Value, key string) {
	if node.Kind != yaml.ScalarNode || isNull(node) {
		l.problem(node, key, "want %s, got %s", wantOf(v), describe(node))
		return
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := t.UnmarshalText([]byte(node.Value)); err != nil {
			l.problem(node, key, "%v", err)
			return
		}
		l.mark(node, key)
		return
	}
	tag, ok := node.ShortTag(), false
	switch v.Kind() {
	case reflect.String: // 3.12 unquoted means the text 3.12, too
		v.SetString(node.Value)
		ok = true
	case reflect.Bool:
		ok = node.Value == "true" || node.Value == "false"
		if ok {
			v.SetBool(node.Value == "true")
		}
	case reflect.Int, reflect.Uint64:
		fresh := reflect.New(v.Type())
		ok = tag == "!!int" && node.Decode(fresh.Interface()) == nil
		if ok {
			v.Set(fresh.Elem())
		}
	case reflect.Float64:
		var f float64
		ok = (tag == "!!int" || tag == "!!float") && node.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
		if ok {
			v.SetFloat(f)
		}
	default:
		panic("config: field " + key + " has a type that the decoder does not know: " + v.Type().String())
	}
	if !ok {
		l.problem(node, key, "want %s, got %s", wantOf(v), describe(node))
		return
	}
	l.mark(node, key)
}

func (l *layer) mark(node *yaml.Node, key string) {
	if strings.Contains(key, "[") { // an item; its list is marked
		return
	}
	l.sources[key] = l.name
	if l.lines && node.Line > 0 {
		l.sources[key] = fmt.Sprintf("%s, line %d", l.name, node.Line)
	}
}

func isNull(node *yaml.Node) bool {
	return node.Kind == 0 || node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// describe shows the value of a key for a message, a long one by its beginning.
func describe(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode && !isNull(node) {
		return fmt.Sprintf("%q", short(node.Value))
	}
	return kindOf(node)
}

// kindOf says what a document is without showing anything of it.
func kindOf(node *yaml.Node) string {
	switch {
	case isNull(node):
		return "nothing"
	case node.Kind == yaml.MappingNode:
		return "keys and values"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	}
	return "a text"
}

// short is a name or value of a text for a message.
func short(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func wantOf(v reflect.Value) string {
	switch v.Addr().Interface().(type) {
	case *Duration:
		return "a duration with a unit such as 90s"
	case *Bytes:
		return "a size with a unit such as 64MiB"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float64:
		return "a finite number"
	}
	return "text"
}

// field is one key of a section.
type field struct {
	name, doc string
	index     int
}

// fieldsOf lists the keys of a struct type in order.
func fieldsOf(t reflect.Type) []field {
	fields := make([]field, t.NumField())
	for i := range fields {
		f := t.Field(i)
		fields[i] = field{name: f.Tag.Get("json"), doc: f.Tag.Get("doc"), index: i}
	}
	return fields
}

func join(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

// suggest names the closest key, if one is close.
func suggest(got string, fields []field) string {
	best, bestDistance := "", 3
	for _, f := range fields {
		if d := distance(got, f.name); d < bestDistance {
			best, bestDistance = f.name, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
