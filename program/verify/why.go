package verify

import (
	"errors"
	"fmt"

	"capgpu/program"
	"capgpu/program/spirv"
)

// Why returns everything in a bundle that is outside the profile as such: its
// capabilities, types, instructions and the like, each once with its first place and
// how often it is there. The first is Admit's refusal; the list is empty for a bundle
// that Admit takes. Admit may find more once these are gone.
func Why(data []byte, lim Limits) []program.Diagnostic {
	_, err := Admit(data, lim)
	if err == nil {
		return nil
	}

	var refusal *program.Refusal
	if !errors.As(err, &refusal) {
		return []program.Diagnostic{{Message: err.Error()}}
	}

	list := []program.Diagnostic{refusal.Diagnostic}
	b, err := program.Parse(data)
	if err != nil {
		return list
	}
	m, err := spirv.Parse(b.SPIRV)
	if err != nil {
		return list
	}

	s := survey{v: &verifier{m: m, lim: lim, manifest: b.Manifest}, at: map[string]int{}}
	s.module()
	for i, d := range s.found {
		if d.Code == refusal.Code && d.Off == refusal.Off {
			continue
		}
		if n := s.times[i]; n > 1 {
			d.Message += fmt.Sprintf(" (%d times)", n)
		}
		if len(list) < maxCauses {
			list = append(list, d)
		}
	}

	return list
}

const maxCauses = 64

// survey collects what is outside the profile, whatever surrounds it.
type survey struct {
	v     *verifier
	found []program.Diagnostic
	times []int
	at    map[string]int // place in found, by code and message
}

func (s *survey) add(r *program.Refusal) {
	if r == nil {
		return
	}
	key := r.Code + r.Message
	if i, ok := s.at[key]; ok {
		s.times[i]++
		return
	}
	s.at[key] = len(s.found)
	s.found, s.times = append(s.found, r.Diagnostic), append(s.times, 1)
}

func (s *survey) module() {
	v, m := s.v, s.v.m
	v.ids = make([]idInfo, max(m.Bound, 1))
	v.exts, v.caps = map[string]bool{}, map[spirv.Capability]bool{}
	for i := range m.Extensions {
		name, _ := spirv.Text(m.Extensions[i].Args)
		if v.exts[name] = true; !extensions[name] {
			s.add(v.refuse(CodeExtension, &m.Extensions[i], "extension %.80q is outside the profile", name))
		}
	}

	for i := range m.Capabilities {
		s.add(v.capability(&m.Capabilities[i]))
	}

	for i := range m.Annotations {
		in := &m.Annotations[i]
		at := 1
		if in.Op == spirv.OpMemberDecorate || in.Op == spirv.OpMemberDecorateString {
			at = 2
		}
		if d := spirv.Decoration(in.Arg(at)); decorations[d] == 0 {
			s.add(v.refuse(CodeDecoration, in, "decoration %v is outside the profile", d))
		}
	}

	for i := range m.Globals {
		s.global(&m.Globals[i])
	}

	for _, f := range m.Functions {
		for _, b := range f.Blocks {
			for i := range b.Insts {
				s.inst(&b.Insts[i])
			}
			switch b.Term.Op {
			case spirv.OpBranch, spirv.OpBranchConditional, spirv.OpSwitch, spirv.OpReturn, spirv.OpReturnValue, spirv.OpUnreachable:
			default:
				s.add(s.nameless(v.outside(&b.Term)))
			}
		}
	}
}

// nameless is a finding that names its opcode, as it stands for others like it.
func (s *survey) nameless(r *program.Refusal) *program.Refusal {
	r.Message = r.Op + ": " + r.Message
	return r
}

func (s *survey) global(in *spirv.Inst) {
	v := s.v
	switch in.Op {
	case spirv.OpTypeVoid, spirv.OpTypeBool, spirv.OpTypeInt, spirv.OpTypeFloat, spirv.OpTypeVector, spirv.OpTypeMatrix, spirv.OpTypeArray,
		spirv.OpTypeRuntimeArray, spirv.OpTypeStruct, spirv.OpTypeFunction, spirv.OpUndef, spirv.OpVariable, spirv.OpExtInst,
		spirv.OpNop, spirv.OpLine, spirv.OpNoLine:

	case spirv.OpTypePointer:
		switch class := spirv.StorageClass(in.Arg(0)); class {
		case spirv.StorageClassFunction, spirv.StorageClassPrivate, spirv.StorageClassWorkgroup, spirv.StorageClassUniform,
			spirv.StorageClassPushConstant, spirv.StorageClassInput, spirv.StorageClassStorageBuffer:
		default:
			s.add(v.refuse(CodeClass, in, "storage class %v is outside the profile", class))
		}

	case spirv.OpSpecConstantOp:
		if op := spirv.Opcode(in.Arg(0)); !specOps[op] {
			s.add(v.refuse(CodeSpecOp, in, "the operation %v is outside the profile", op))
		}

	default:
		if class(in.Op) == isType {
			s.add(s.nameless(v.refuse(CodeType, in, "outside the profile")))
		} else if class(in.Op) != isConstant {
			s.add(s.nameless(v.refuse(CodeOpcode, in, "outside the profile")))
		}
	}
}

func (s *survey) inst(in *spirv.Inst) {
	v := s.v
	switch in.Op {
	case spirv.OpPhi, spirv.OpVariable, spirv.OpNop, spirv.OpLine, spirv.OpNoLine:
	case spirv.OpExtInst:
		if !v.m.IsGLSL(in.Arg(0)) {
			return
		}
		if g := spirv.GLSL(in.Arg(1)); glslRules[g].check == nil {
			s.add(v.refuse(CodeExtended, in, "%v is outside the profile", g))
		}

	default:
		if ruleOf(in.Op) == nil {
			s.add(s.nameless(v.outside(in)))
		}
	}
}
