package main

import (
	"slices"
	"testing"
)

const sample = `package p

func f(a, b int) (bool, error) {
	if a < b && b != 3 {
		g(a)
		a += 2
		return true, err
	}
	return false, errors.New("1 is 2")
}

func g(a int) { a++ }
`

// Each place is found, texts for people are left alone, and each change is of the one place.
func TestMutants(t *testing.T) {
	found, err := mutantsOf("p.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range found {
		got = append(got, found[i].key("/somewhere/p"))
	}
	for _, want := range []string{
		"p/p.go: if a < b && b != 3 { ⇒ if a <= b && b != 3 {",
		"p/p.go: if a < b && b != 3 { ⇒ if a < b || b != 3 {",
		"p/p.go: if a < b && b != 3 { ⇒ if a < b && b == 3 {",
		"p/p.go: if a < b && b != 3 { ⇒ if a < b && b != 4 {",
		"p/p.go: if a < b && b != 3 { ⇒ if false && a < b && b != 3 {",
		"p/p.go: g(a) ⇒ ",
		"p/p.go: a += 2 ⇒ ",
		"p/p.go: a += 2 ⇒ a += 1",
		"p/p.go: return true, err ⇒ return true, nil",
		"p/p.go: func g(a int) { a++ } ⇒ func g(a int) { if len(\"x\") == 1 { return }; a++ }",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("not found: %s", want)
		}
	}
	for _, key := range got {
		if key == "p/p.go: return false, errors.New(\"1 is 2\") ⇒ return false, errors.New(\"2 is 2\")" {
			t.Error("the words of an error are changed")
		}
	}
}

func TestEquivalents(t *testing.T) {
	known := equivalents("# a/b.go: x ⇒ y # a comment\na/b.go: x ⇒ y # why\na/b.go: x ⇒ z\n")
	if len(known) != 1 || !known["a/b.go: x ⇒ y"] {
		t.Errorf("%v", known)
	}
}
