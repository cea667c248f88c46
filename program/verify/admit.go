package verify

import (
	"regexp"
	"strconv"

	"capgpu/program"
	"capgpu/program/spirv"
)

// Admit reads a bundle and decides whether it is a program of the profile. The
// error is a *program.Refusal. For any bytes, it returns after time in proportion
// to them (with a factor for the nesting of constructs, which lim bounds), and
// without allocating more than 96 × len(data) + 256 KiB.
func Admit(data []byte, lim Limits) (*Program, error) {
	b, err := program.Parse(data)
	if err != nil {
		return nil, err
	}

	m, err := spirv.Parse(b.SPIRV)
	if err != nil {
		return nil, err
	}

	lim.Bindings = min(lim.Bindings, program.MaxBindings)
	v := &verifier{m: m, lim: lim, manifest: b.Manifest}
	p, r := v.program()
	if r != nil {
		return nil, r
	}

	p.Info.Digest = b.Digest
	return p, nil
}

// verifier is one module under check. The steps run in the order of the module's
// sections, and each relies on the results of the earlier ones.
type verifier struct {
	m        *spirv.Module
	lim      Limits
	manifest *program.Manifest

	ids    []idInfo // by id
	types  []typ
	consts []constant
	caps   map[spirv.Capability]bool
	exts   map[string]bool
	glsl   spirv.ID // the import of GLSL.std.450
	vulkan bool     // the Vulkan memory model
	entry  *spirv.Inst
	roles  roles

	// Annotations of an id are a list: decHead by id, decNext by annotation, both
	// 1 + an index in m.Annotations.
	decHead []int32
	decNext []int32

	uniq        map[uint64]*spirv.Inst // types by a hash of their words
	specialised map[spirv.ID]uint64    // constants that the manifest sets
	functions   []function

	// The program's interface.
	iface struct {
		entry     *spirv.Function
		entryName string
		block     workgroup
		sizes     map[spirv.ID]int // the constants with the SpecId of a dimension
		slots     []slot           // of the buffers, as they are declared
		buffers   []buffer         // by binding
		inline    spirv.ID         // the variable of the push constants
		fields    []program.Field
		shared    []variable
		private   uint64 // bytes of Private variables
	}

	// The part that the entry point reaches.
	reached struct {
		order          []int32 // functions, callees before their callers; all of them
		features       featureSet
		sharedBytes    uint64
		dynamicElement uint64
	}

	// Pointers that are chosen when the program runs.
	flows  []edge
	opened []opened
	reach  []reach     // by id; nil if there are no flows
	chosen *spirv.Inst // the first instruction by which one is

	warnings []program.Diagnostic
	steps    int // remaining steps of searches for warnings

	// The function, block and instruction under check.
	cur struct {
		fn, at    int32 // 1 + function; block
		cfg       *spirv.CFG
		bad       *program.Refusal // the first operand that is no value here
		small     bool             // the instruction takes 8 and 16 bits
		root      spirv.ID         // of the resulting pointer
		rootFlags uint8
		member    uint8
	}
}

// idInfo is the object of an id.
type idInfo struct {
	typ  *typ // of a type, the type itself
	what idKind
	// member is, of a pointer into an array of buffers, 1 + the buffer's number in it.
	member uint8
	fn     int32 // where it is defined: 1 + function; 0: outside
	block  int32 // of the function
	num    int32 // of a constant, variable or function: its index
	flags  uint8
	// root is, of a pointer, the variable or parameter that it leads into; or, where it
	// is chosen when the program runs, the instruction that chooses.
	root spirv.ID
}

type idKind uint8

const (
	isNothing idKind = iota
	isType
	isConstant
	isUndef
	isVariable
	isParameter
	isValue // any other result with a type
	isFunction
	isLabel
	isImport
)

// program runs the steps.
func (v *verifier) program() (*Program, *program.Refusal) {
	v.ids = make([]idInfo, max(v.m.Bound, 1))
	for _, step := range []func() *program.Refusal{
		v.preamble, v.annotations, v.assign, v.globals, v.interfaces, v.code, v.pointers, v.decorated, v.calls, v.flow,
	} {
		if r := step(); r != nil {
			return nil, r
		}
	}
	return v.result()
}

// refuse makes the refusal of an instruction.
func (v *verifier) refuse(code Code, in *spirv.Inst, format string, args ...any) *program.Refusal {
	r := program.Refuse(code, in.Op.String(), in.Off, format, args...)
	r.Source = v.m.Source(in.Line)
	r.Message = idForm.ReplaceAllStringFunc(r.Message, func(id string) string {
		n, _ := strconv.ParseUint(id[1:], 10, 32)
		if name := v.label(spirv.ID(n)); name != "" {
			return id + " (" + name + ")"
		}
		return id
	})
	return r
}

// idForm is an id in a message, which gets the source's name beside it.
var idForm = regexp.MustCompile(`%[0-9]{1,9}\b`)

// warn records a finding that is no refusal.
func (v *verifier) warn(code Code, in *spirv.Inst, format string, args ...any) {
	if len(v.warnings) < v.lim.Warnings {
		v.warnings = append(v.warnings, v.refuse(code, in, format, args...).Diagnostic)
	}
}

// info is the object of id; the zero idInfo if there is none.
func (v *verifier) info(id spirv.ID) *idInfo {
	if uint64(id) < uint64(len(v.ids)) {
		return &v.ids[id]
	}
	return &v.ids[0]
}

// typeAt is the type that id declares, nil if it declares none.
func (v *verifier) typeAt(id spirv.ID) *typ {
	if i := v.info(id); i.what == isType {
		return i.typ
	}
	return nil
}
