package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/program"
	"capgpu/program/spirv"
)

// constArgs are the values of specialisation constants.
type constArgs struct {
	Const []string `help:"Value of a specialisation constant, by its constant_id or its name in the source: ID=VALUE or NAME=VALUE, for instance 0=64 or useBias=true. For a program from a file. Repeat for more." placeholder:"ID=VALUE" sep:"none"`
}

// special is a specialisation constant of a module.
type special struct {
	id   uint32 // SpecId
	name string // "" if the module has none
	bool bool
	typ  program.Type
}

// apply returns the bundle with the constants in its manifest, in the place of those
// that it may have there.
func (c *constArgs) apply(path string, bundle []byte) ([]byte, error) {
	if len(c.Const) == 0 {
		return bundle, nil
	}

	parsed, err := program.Parse(bundle)
	if err != nil {
		return nil, err
	}
	m, err := spirv.Parse(parsed.SPIRV)
	if err != nil {
		return nil, err
	}

	have := specials(m)
	manifest := parsed.Manifest
	var given []uint32
	for _, arg := range c.Const {
		value, err := parseConst(path, arg, have)
		if err != nil {
			return nil, err
		}
		if slices.Contains(given, value.ID) {
			return nil, usagef("--const %s: constant %d is given twice", arg, value.ID)
		}
		given = append(given, value.ID)
		manifest.Constants = slices.DeleteFunc(manifest.Constants, func(o program.Constant) bool { return o.ID == value.ID })
		manifest.Constants = append(manifest.Constants, value)
	}

	out, err := program.Encode(parsed.SPIRV, manifest)
	if err != nil {
		return nil, usagef("%s: %v", path, err)
	}

	return out, nil
}

// parseConst reads ID=VALUE or NAME=VALUE.
func parseConst(path, arg string, have []special) (program.Constant, error) {
	key, text, ok := strings.Cut(arg, "=")
	if !ok {
		return program.Constant{}, usagef("--const %s: write ID=VALUE or NAME=VALUE", arg)
	}

	at := -1
	if id, err := strconv.ParseUint(key, 0, 32); err == nil {
		at = slices.IndexFunc(have, func(s special) bool { return uint64(s.id) == id })
	} else {
		at = slices.IndexFunc(have, func(s special) bool { return s.name == key })
	}

	if at < 0 {
		return program.Constant{}, usagef("--const %s: %s has %s", arg, path, specialsText(have))
	}

	s := have[at]
	if s.bool {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return program.Constant{}, usagef("--const %s: %q is neither true nor false", arg, text)
		}
		bits := uint64(0)
		if v {
			bits = 1
		}
		return program.Constant{ID: s.id, Value: bits}, nil
	}

	t, ok := npy.ParseDType(string(s.typ))
	if !ok {
		return program.Constant{}, usagef("--const %s: this gpuctl knows no values of constant %d", arg, s.id)
	}
	bits, ok := parseValue(t, text)
	if !ok {
		return program.Constant{}, usagef("--const %s: %q is no %s value", arg, text, s.typ)
	}

	return program.Constant{ID: s.id, Value: bits & (^uint64(0) >> (64 - 8*t.Bytes()))}, nil
}

// specials lists a module's specialisation constants, each SpecId once.
func specials(m *spirv.Module) []special {
	var list []special
	for i := range m.Globals {
		in := &m.Globals[i]
		d, ok := m.Decoration(in.Result, spirv.DecorationSpecId)
		if !ok || in.Result == 0 || len(d.Args) < 3 {
			continue
		}

		s := special{id: d.Args[2]}
		if name := m.Name(in.Result); !strings.HasPrefix(name, "%") {
			s.name = name
		}
		t := m.Def(in.Type)
		switch {
		case t == nil:
			continue
		case t.Op == spirv.OpTypeBool:
			s.bool = true
		case t.Op == spirv.OpTypeFloat:
			s.typ = program.Type(fmt.Sprintf("f%d", t.Args[0]))
		case t.Op == spirv.OpTypeInt && t.Args[1] == 1:
			s.typ = program.Type(fmt.Sprintf("i%d", t.Args[0]))
		case t.Op == spirv.OpTypeInt:
			s.typ = program.Type(fmt.Sprintf("u%d", t.Args[0]))
		default:
			continue
		}

		if at := slices.IndexFunc(list, func(o special) bool { return o.id == s.id }); at < 0 {
			list = append(list, s)
		} else if list[at].name == "" {
			list[at].name = s.name // LocalSizeId's constant has none, and one of the source may
		}
	}

	return list
}

// specialsText is "no specialisation constants", or "the constants 0 (width, u32) and
// 3 (gain, f32)".
func specialsText(list []special) string {
	if len(list) == 0 {
		return "no specialisation constants"
	}
	var texts []string
	for _, s := range list {
		typ := string(s.typ)
		if s.bool {
			typ = "bool"
		}
		if s.name != "" {
			typ = s.name + ", " + typ
		}
		texts = append(texts, fmt.Sprintf("%d (%s)", s.id, typ))
	}
	return "the constants " + listText(texts)
}
