package accel

import (
	"fmt"
	"reflect"
	"sync"
)

// layout is the outcome of looking at an element type once.
type layout struct {
	bytes uint64
	leaf  string // the scalar that all of it is made of, as in client.BindingInfo.Type; "": several
	err   error  // NotPlain
}

var layouts sync.Map // reflect.Type to *layout

// layoutOf looks at a type: it is refused as E-GPU-4005 unless any bits are a value of it, and it
// means the same in this process and on the device.
func layoutOf[T any]() *layout {
	t := reflect.TypeFor[T]()
	if known, ok := layouts.Load(t); ok {
		return known.(*layout)
	}

	l := &layout{bytes: uint64(t.Size())}
	var why string
	if l.leaf, why = leafOf(t); why == "" && t.Size() == 0 {
		why = "has no bytes"
	}
	if why != "" {
		l.err = &Error{Code: NotPlain, Op: "Alloc", Msg: fmt.Sprintf("%v %s", t, why)}
	}
	known, _ := layouts.LoadOrStore(t, l)
	return known.(*layout)
}

var leaves = map[reflect.Kind]string{
	reflect.Int8: "i8", reflect.Uint8: "u8", reflect.Int16: "i16", reflect.Uint16: "u16",
	reflect.Int32: "i32", reflect.Uint32: "u32", reflect.Int64: "i64", reflect.Uint64: "u64",
	reflect.Float32: "f32", reflect.Float64: "f64",
}

// leafOf says which scalar a type is made of, or why it is not plain.
func leafOf(t reflect.Type) (leaf, why string) {
	switch t.Kind() {
	case reflect.Array:
		return leafOf(t.Elem())

	case reflect.Struct:
		var end uintptr
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Offset != end {
				return "", fmt.Sprintf("has padding before %s", f.Name)
			}
			end = f.Offset + f.Type.Size()

			one, why := leafOf(f.Type)
			if why != "" {
				return "", fmt.Sprintf("has a field %s, which %s", f.Name, why)
			}
			if i == 0 {
				leaf = one
			} else if leaf != one {
				leaf = ""
			}
		}
		if end != t.Size() {
			return "", "has padding at its end"
		}
		return leaf, ""

	case reflect.Int, reflect.Uint, reflect.Uintptr:
		return "", fmt.Sprintf("is a %v, which has no fixed size", t.Kind())
	}

	leaf, ok := leaves[t.Kind()]
	if !ok {
		return "", fmt.Sprintf("is a %v, which the device does not have", t.Kind())
	}
	return leaf, ""
}

// fits reports whether elements made of leaf are those of a binding. Go has no 16-bit floats: their
// bits are a uint16.
func (l *layout) fits(binding string) bool {
	return binding == "" || l.leaf == binding || l.leaf == "u16" && binding == "f16"
}
