package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// strict reads an object into v and refuses keys that v does not have. doubt is what encoding/json takes, as older builds did, and a person
// cannot have meant: a key in another case, a key that is there twice, a value that is null. It is no error, so that a history in which
// such a message was accepted replays; who reads a new message refuses it.
func strict(data []byte, v any) (doubt, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return nil, err
	}
	var known []string
	for f := range reflect.TypeOf(v).Elem().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			known = append(known, name)
		}
	}
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
		right := key
		if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, key) }); i >= 0 {
			right = known[i]
		}
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
