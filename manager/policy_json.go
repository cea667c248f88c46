package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// node is one JSON value with its place in the file, for error messages. encoding/json alone
// keeps neither places nor duplicate names.
type node struct {
	off     int // of its first byte
	object  []member
	array   []*node
	text    string
	number  json.Number
	boolean bool
	kind    nodeKind
}

type member struct {
	name  string
	off   int
	value *node
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	textNode
	arrayNode
	objectNode
)

var nodeKinds = [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}

const (
	maxNodeDepth = 16
	maxNodes     = 65536
)

// placed is an error at an offset of the file.
type placed struct {
	off int
	msg string
}

func (p *placed) Error() string { return p.msg }

func at(off int, format string, args ...any) error {
	return &placed{off: off, msg: fmt.Sprintf(format, args...)}
}

// position turns an error at an offset into "line 3, column 7: …".
func position(data []byte, err error) error {
	var p *placed
	if !errors.As(err, &p) {
		return err
	}
	before := data[:min(p.off, len(data))]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Errorf("line %d, column %d: %s", line, column, p.msg)
}

// nodeReader builds the tree from encoding/json's tokens.
type nodeReader struct {
	data  []byte
	dec   *json.Decoder
	count int
}

func parseNodes(data []byte) (*node, error) {
	if len(data) > maxPolicyBytes {
		return nil, at(maxPolicyBytes, "the file is longer than %d bytes", maxPolicyBytes)
	}

	for off := 0; off < len(data); {
		r, n := utf8.DecodeRune(data[off:])
		if r == utf8.RuneError && n == 1 {
			return nil, at(off, "the file is not UTF-8 here")
		}
		off += n
	}

	r := &nodeReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	root, err := r.value(0)
	if err != nil {
		return nil, err
	}

	end := r.next()
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, at(end, "there is something after the end of the object; remove it")
	}

	return root, nil
}

// next is where the next token starts.
func (r *nodeReader) next() int {
	off := int(r.dec.InputOffset())
	for off < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[off]) >= 0 {
		off++
	}
	return off
}

func (r *nodeReader) token() (json.Token, int, error) {
	off := r.next()
	t, err := r.dec.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return t, off, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, off, at(len(r.data), "the file ends in the middle of a value; close what is open")
	case errors.As(err, &syntax):
		return nil, off, at(off, "not JSON: %v", syntax)
	default:
		return nil, off, at(off, "not JSON: %v", err)
	}
}

func (r *nodeReader) value(depth int) (*node, error) {
	t, off, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.count++; r.count > maxNodes {
		return nil, at(off, "the file has more than %d values", maxNodes)
	}

	n := &node{off: off}
	switch t := t.(type) {
	case json.Delim:
		if depth == maxNodeDepth {
			return nil, at(off, "more than %d levels of nesting", maxNodeDepth)
		}
		if t == '[' {
			n.kind = arrayNode
			err = r.elements(n, depth)
		} else {
			n.kind = objectNode
			err = r.members(n, depth)
		}
		return n, err
	case string:
		n.kind, n.text = textNode, t
	case json.Number:
		n.kind, n.number = numberNode, t
	case bool:
		n.kind, n.boolean = boolNode, t
	}

	return n, nil
}

func (r *nodeReader) elements(n *node, depth int) error {
	for r.dec.More() {
		e, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.array = append(n.array, e)
	}
	_, _, err := r.token() // the closing bracket
	return err
}

func (r *nodeReader) members(n *node, depth int) error {
	seen := make(map[string]bool)
	for r.dec.More() {
		t, off, err := r.token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return at(off, "a name in quotes is missing here")
		}
		if seen[name] {
			return at(off, "%q is here twice; keep one", name)
		}
		seen[name] = true
		v, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.object = append(n.object, member{name, off, v})
	}

	_, _, err := r.token() // the closing brace
	return err
}
