package crashpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// Environment names the variable that arms a point.
const Environment = "CAPGPU_CRASHPOINT"

// Status is what a process that died at a point exits with.
const Status = 86

// Processes that die.
const (
	Manager = "manager"
	Driver  = "driver"
	Gate    = "gate"
)

// Point is a place and the pass at which to die there, from 1.
type Point struct {
	Label string
	Pass  int
	// Child is which process of its role dies, from 1, in the order in which the
	// manager starts them; the manager itself is its only one.
	Child int
}

// String is what Parse reads.
func (p Point) String() string {
	s := p.Label + ":" + strconv.Itoa(p.Pass)
	if p.Child > 1 {
		s += "@" + strconv.Itoa(p.Child)
	}
	return s
}

// Parse reads LABEL[:PASS][@CHILD], and refuses labels that are not in the table.
func Parse(text string) (Point, error) {
	p := Point{Pass: 1, Child: 1}
	rest, child, named := strings.Cut(text, "@")
	label, pass, counted := strings.Cut(rest, ":")
	p.Label = label
	for _, x := range []struct {
		is   bool
		text string
		to   *int
	}{{counted, pass, &p.Pass}, {named, child, &p.Child}} {
		if !x.is {
			continue
		}
		n, err := strconv.Atoi(x.text)
		if err != nil || n < 1 {
			return Point{}, fmt.Errorf("crash point %q: pass and child are numbers from 1", text)
		}
		*x.to = n
	}

	if _, ok := Describe(label); !ok {
		return Point{}, fmt.Errorf("crash point %q: there is none of this name", label)
	}

	return p, nil
}

// RoleOf is the process that dies at a label.
func RoleOf(label string) string {
	word, _, _ := strings.Cut(label, ".")
	if word == "audit" { // which the manager writes
		return Manager
	}
	return word
}

// Describe says in words where a label is.
func Describe(label string) (what string, ok bool) {
	for _, l := range Table {
		if l.Label == label {
			return l.What, true
		}
	}
	return "", false
}
