package config

import "reflect"

// Key is a key of a configuration with its meaning.
type Key struct {
	Name string // as in --set, for example run.steps
	Doc  string
}

// Keys lists every key that can be set, in the order of docs/config.md.
func Keys() []Key { return keysOf(reflect.TypeFor[Config](), "") }

func keysOf(t reflect.Type, section string) []Key {
	var out []Key
	for _, f := range fieldsOf(t) {
		key, typ := join(section, f.name), t.Field(f.index).Type
		if typ.Kind() == reflect.Struct {
			out = append(out, keysOf(typ, key)...)
			continue
		}
		out = append(out, Key{key, f.doc})
	}
	return out
}
