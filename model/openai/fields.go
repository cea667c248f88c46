package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sort"
	"strconv"
	"unicode/utf8"

	"capgpu/model/lm"
)

// fields are the members of a JSON object, each unparsed. A member that is null
// counts as missing.
type fields map[string]json.RawMessage

// read reads a request's object and passes it to take. The returned request knows
// its asker. release gives back the memory of a large body; it may be called more
// than once, and must always be.
func (a *api) read(w http.ResponseWriter, r *http.Request, take endpoint) (answer http.HandlerFunc, of *http.Request, release func(), err error) {
	body, release, err := a.readBody(w, r)
	if err != nil {
		return nil, r, release, err
	}

	f, err := parseObject(body)
	if err != nil {
		return nil, r, release, err
	}

	user, err := f.text("user", maxNameBytes)
	if err != nil {
		return nil, r, release, err
	}
	if user != "" {
		r = r.WithContext(lm.WithAsker(r.Context(), lm.Asker{Peer: lm.AskerOf(r.Context()).Peer, User: user}))
	}

	answer, err = take(r.Context(), f)
	return answer, r, release, err
}

// parseObject parses one JSON object with nothing after it and without duplicate
// names: two readers could believe different duplicates.
func parseObject(body []byte) (fields, error) {
	if !utf8.Valid(body) {
		return nil, invalid("", "the body is not UTF-8")
	}
	f, err := members(body, maxMembers)
	if err != nil {
		return nil, invalid("", "the body is not a JSON object: %v", err)
	}
	return f, nil
}

// members are those of an object, of which there may be at most most.
func members(body []byte, most int) (fields, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil {
		return nil, plain(err)
	} else if t != json.Delim('{') {
		return nil, errors.New("it begins otherwise")
	}

	f := fields{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, plain(err)
		}

		name, _ := t.(string)
		if _, twice := f[name]; twice {
			return nil, fmt.Errorf("%q comes twice", clip(name))
		}
		if len(f) == most {
			return nil, fmt.Errorf("it has more than %d members", most)
		}

		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, plain(err)
		}

		f[name] = value
	}

	if _, err := d.Token(); err != nil {
		return nil, plain(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after it")
	}

	for name, value := range f {
		if bytes.Equal(value, []byte("null")) {
			delete(f, name)
		}
	}

	return f, nil
}

// plain shortens an error of package json, which may quote a number of any length.
func plain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return errors.New(clipAt(err.Error(), 160))
}

// clip is a client's text for one of our messages.
func clip(s string) string { return clipAt(s, 64) }

func clipAt(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func (f fields) has(name string) bool { _, ok := f[name]; return ok }

// text is a string of at most most bytes; "" if there is none.
func (f fields) text(name string, most int) (string, error) {
	raw, ok := f[name]
	if !ok {
		return "", nil
	}
	return textOf(name, raw, most)
}

func textOf(param string, raw json.RawMessage, most int) (string, error) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", invalid(param, "must be a string")
	}
	if len(s) > most {
		return "", invalid(param, "%d bytes are more than %d", len(s), most)
	}
	return s, nil
}

func (f fields) flag(name string) (bool, error) {
	switch string(f[name]) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, invalid(name, "must be true or false")
}

func (f fields) integer(name string, least, most, without int64) (int64, error) {
	raw, ok := f[name]
	if !ok {
		return without, nil
	}
	return integerOf(name, raw, least, most)
}

func integerOf(param string, raw json.RawMessage, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < least || n > most):
		return 0, invalid(param, "%s is not within %d to %d", clip(string(raw)), least, most)
	case err != nil:
		return 0, invalid(param, "must be an integer")
	}
	return n, nil
}

func (f fields) number(name string, least, most, without float64) (float64, error) {
	raw, ok := f[name]
	if !ok {
		return without, nil
	}
	return numberOf(name, raw, least, most)
}

func numberOf(param string, raw json.RawMessage, least, most float64) (float64, error) {
	var n float64
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, invalid(param, "must be a number")
	}
	if json.Unmarshal(raw, &n) != nil || math.IsNaN(n) || n < least || n > most {
		return 0, invalid(param, "%s is not within %g to %g", clip(string(raw)), least, most)
	}
	return n, nil
}

// each calls do for the elements of a list, and stops at the first beyond most.
func each(param string, raw json.RawMessage, most int, do func(i int, raw json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return invalid(param, "must be a list")
	}

	for i := 0; d.More(); i++ {
		if i == most {
			return invalid(param, "more than %d elements", most)
		}
		var element json.RawMessage
		if err := d.Decode(&element); err != nil {
			return invalid(param, "%v", plain(err))
		}
		if err := do(i, element); err != nil {
			return err
		}
	}

	return nil
}

// at is the name of an element.
func at(param string, i int) string { return fmt.Sprintf("%s[%d]", param, i) }

// refuse names the first member (by name) that asks for anything but the default.
func (f fields) refuse(harmless map[string][]string) error {
	names := make([]string, 0, len(f))
	for name := range f {
		if _, ok := harmless[name]; ok {
			names = append(names, name)
		}
	}

	sort.Strings(names)
next:
	for _, name := range names {
		var compact bytes.Buffer
		if err := json.Compact(&compact, f[name]); err != nil {
			return invalid(name, "%v", err)
		}
		for _, value := range harmless[name] {
			if compact.String() == value {
				continue next
			}
		}
		return unsupported(name, "this model does not do that")
	}
	return nil
}
