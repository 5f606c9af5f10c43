package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/steadyrl/steady/internal/jsonl"
)

// strict reads an object into v and refuses keys that v does not have and values of another type. The error says what is wrong in the words of who sent it;
// what would be right is for the caller to say. It is returned as doubt too, which a request keeps: the SDK hands on the error's text only, among its own.
//
// Else doubt is what encoding/json takes, as older builds did, and a person cannot have meant: a key in another case, a key that is there twice, a value
// that is null. It is no error, so that a history in which such a message was accepted replays; who reads a new message refuses it.
func strict(data []byte, v any) (doubt, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		err = errors.New(wrong(data, v))
		return err, err
	}
	known, _ := keysOf(v)
	dec = json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, err // null, which says nothing
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, value := fmt.Sprint(t), json.RawMessage(nil)
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		right := spelt(known, key)
		switch {
		case doubt != nil:
		case right != key:
			doubt = fmt.Errorf("the key %q is spelt %q", key, right)
		case seen[right]:
			doubt = fmt.Errorf("the key %q is there twice", key)
		case string(value) == "null":
			doubt = fmt.Errorf("%q is null: leave it out, or give it a value", key)
		}
		seen[right] = true
	}
	return doubt, nil
}

// keysOf returns the keys that the struct behind v has in JSON, in order, with the types of their values.
func keysOf(v any) (known []string, types map[string]reflect.Type) {
	types = map[string]reflect.Type{}
	for f := range reflect.TypeOf(v).Elem().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			known, types[name] = append(known, name), f.Type
		}
	}
	return known, types
}

// spelt returns the known key that encoding/json takes for key, else key.
func spelt(known []string, key string) string {
	if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, key) }); i >= 0 {
		return known[i]
	}
	return key
}

// wrong says why data, a JSON value, cannot be read into v: every key that v does not have, with those that it has, and every value of another type.
func wrong(data []byte, v any) string {
	const most = 5
	if k := jsonl.Kind(data); k != jsonl.Object {
		return "the input is " + k
	}
	known, types := keysOf(v)
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token() // the brace
	var all, unknown []string
	for dec.More() {
		t, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return "the input is no JSON"
		}
		key := fmt.Sprint(t)
		right := spelt(known, key)
		if types[right] == nil {
			unknown = append(unknown, jsonl.Short(key))
		} else if json.Unmarshal(value, reflect.New(types[right]).Interface()) != nil {
			all = append(all, fmt.Sprintf("%q is %s, want %s", right, shown(value), wanted(types[right])))
		}
	}
	if n := len(unknown); n > 0 {
		list := strings.Join(unknown[:min(n, most)], ", ")
		if n > most {
			list += fmt.Sprintf(" and %d more", n-most)
		}
		is, keys := "is", "none is"
		if n > 1 {
			is = "are"
		}
		if len(known) > 0 {
			keys = "known: " + strings.Join(known, ", ")
		}
		all = append(all, fmt.Sprintf("%s %s not known (%s)", list, is, keys))
	}
	if len(all) == 0 {
		return "the input cannot be read"
	}
	return strings.Join(all, "; ")
}

// shown is a value for a message: scalars as they are, cut if they are long.
func shown(value json.RawMessage) string {
	switch k := jsonl.Kind(value); k {
	case jsonl.String:
		var s string
		if json.Unmarshal(value, &s) == nil {
			return "the text " + jsonl.Short(s)
		}
		return k
	case jsonl.Number, jsonl.Boolean:
		if s := strings.TrimSpace(string(value)); len(s) <= 40 {
			return s
		}
		return k
	default:
		return k
	}
}

// wanted names a type to a person.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		panic("contract: a message has a field of the type " + t.String() + ", which has no words yet")
	}
}
