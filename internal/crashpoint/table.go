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
}

func (p Point) String() string { return p.Label + ":" + strconv.Itoa(p.Pass) }

// Parse reads LABEL or LABEL:PASS, and refuses labels that are not in the table.
func Parse(text string) (Point, error) {
	label, pass, counted := strings.Cut(text, ":")
	p := Point{Label: label, Pass: 1}
	if counted {
		n, err := strconv.Atoi(pass)
		if err != nil || n < 1 {
			return Point{}, fmt.Errorf("crash point %q: the pass is a number from 1", text)
		}
		p.Pass = n
	}
	if _, ok := What(label); !ok {
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

// What says in words where a label is.
func What(label string) (what string, ok bool) {
	for _, l := range Table {
		if l.Label == label {
			return l.What, true
		}
	}
	return "", false
}
