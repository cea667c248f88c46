package iocpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"capgpu/gpuerr"
)

// object is a JSON object that is closed: a field that nobody asked for is refused by name, and so
// is one that is there twice. The first mistake stands, and begins with the path of its field.
type object struct {
	path   string // "" or "kernel_ref."
	fields map[string]json.RawMessage
	err    *error // shared by an object and those within
}

// parseObject takes a JSON object apart.
func parseObject(text []byte, path string, err *error) *object {
	o := &object{path: path, fields: map[string]json.RawMessage{}, err: err}
	if !utf8.Valid(text) || !json.Valid(text) {
		o.refuse("", "no JSON in UTF-8")
		return o
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, _ := d.Token(); t != json.Delim('{') {
		o.refuse("", "no object")
		return o
	}
	for d.More() {
		key, _ := d.Token()
		name, _ := key.(string)
		var value json.RawMessage
		if e := d.Decode(&value); e != nil {
			o.refuse(name, "%v", e)
			return o
		}
		if _, twice := o.fields[name]; twice {
			o.refuse(name, "it is there twice")
		}
		o.fields[name] = value
	}
	return o
}

func (o *object) refuse(name, format string, args ...any) {
	if *o.err == nil {
		path := o.path + name
		if path == "" {
			path = "line"
		}
		*o.err = gpuerr.New(gpuerr.Invalid, "%s: %s", path, fmt.Sprintf(format, args...))
	}
}

// take returns the value of a field; nil where it is null or missing, which mandatory fields are not.
func (o *object) take(name string, mandatory bool) json.RawMessage {
	v, ok := o.fields[name]
	delete(o.fields, name)
	if ok && string(v) == "null" {
		v = nil
	}
	if v == nil && mandatory {
		o.refuse(name, "missing")
	}
	return v
}

func (o *object) text(name string, mandatory bool) string {
	v := o.take(name, mandatory)
	if v == nil {
		return ""
	}
	var s string
	if v[0] != '"' || json.Unmarshal(v, &s) != nil {
		o.refuse(name, "no string")
	}
	return s
}

// oneOf is a string among some; the first is the default of a field that is not mandatory.
func (o *object) oneOf(name string, mandatory bool, words ...string) string {
	if v, ok := o.fields[name]; !mandatory && (!ok || string(v) == "null") {
		delete(o.fields, name)
		return words[0]
	}
	s := o.text(name, mandatory)
	if !slices.Contains(words, s) {
		o.refuse(name, "%q is none of %q", s, words)
	}
	return s
}

// most bounds every integer, so that sums of a few do not wrap.
const most = 1 << 50

// number is an integer from 0: never 1.0, true or "1".
func (o *object) number(name string, mandatory bool) uint64 {
	v := o.take(name, mandatory)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || n > most {
		o.refuse(name, "%.40s is no integer from 0 to 2^50", v)
	}
	return n
}

// within is a number with bounds of its own.
func (o *object) within(name string, least, greatest uint64) uint64 {
	n := o.number(name, true)
	if n < least || n > greatest {
		o.refuse(name, "%d is not from %d to %d", n, least, greatest)
	}
	return n
}

func (o *object) object(name string, mandatory bool) *object {
	v := o.take(name, mandatory)
	if v == nil {
		return nil
	}
	return parseObject(v, o.path+name+".", o.err)
}

func (o *object) list(name string) []json.RawMessage {
	v := o.take(name, true)
	var items []json.RawMessage
	if v != nil && (v[0] != '[' || json.Unmarshal(v, &items) != nil) {
		o.refuse(name, "no list")
	}
	return items
}

func (o *object) item(name string, i int, text json.RawMessage) *object {
	return parseObject(text, fmt.Sprintf("%s%s[%d].", o.path, name, i), o.err)
}

// end refuses what nobody asked for.
func (o *object) end() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.refuse(name, "there is no such field")
	}
}
