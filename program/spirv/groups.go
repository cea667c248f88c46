package spirv

import "strings"

// nonSemantic reports whether id is the import of a set that means nothing.
func (m *Module) nonSemantic(id ID) bool {
	d := m.Def(id)
	if d == nil || d.Op != OpExtInstImport {
		return false
	}
	name, _ := Text(d.Args)
	return strings.HasPrefix(name, "NonSemantic.")
}

// expandGroups replaces decoration groups, which the specification deprecates, by
// the decorations of each of their targets. These have the place of the instruction
// that applies the group, and take no more words than the module has.
func (p *parser) expandGroups() bool {
	m := p.m
	group := make(map[ID][]*Inst)
	for i := range m.Annotations {
		if in := &m.Annotations[i]; in.Op == OpDecorationGroup {
			group[in.Result] = nil
		}
	}
	if len(group) == 0 {
		for i := range m.Annotations {
			if in := &m.Annotations[i]; in.Op == OpGroupDecorate || in.Op == OpGroupMemberDecorate {
				return p.noGroup(in)
			}
		}
		return true
	}

	out := make([]Inst, 0, len(m.Annotations))
	left := len(m.Words)
	add := func(at *Inst, op Opcode, head []uint32, d *Inst) bool {
		if left -= len(head) + len(d.Args); left < 0 {
			p.op, p.off, p.line = at.Op, at.Off, Line{}
			return p.refuse(codeGroup, "with its decoration groups applied, the module is twice as large")
		}
		args := append(append(make([]uint32, 0, len(head)+len(d.Args)), head...), d.Args[1:]...)
		out = append(out, Inst{Op: op, Args: args, Off: at.Off, Line: at.Line})
		return true
	}

	for i := range m.Annotations {
		in := &m.Annotations[i]
		switch in.Op {
		case OpDecorationGroup:

		case OpGroupDecorate, OpGroupMemberDecorate:
			decorations, ok := group[in.Arg(0)]
			if !ok {
				return p.noGroup(in)
			}
			step := 1
			if in.Op == OpGroupMemberDecorate {
				step = 2
			}
			for k := 1; k+step <= len(in.Args); k += step {
				for _, d := range decorations {
					op := d.Op
					if step == 2 {
						op = map[Opcode]Opcode{OpDecorate: OpMemberDecorate, OpDecorateString: OpMemberDecorateString}[d.Op]
					}
					if !add(in, op, in.Args[k:k+step], d) {
						return false
					}
				}
			}

		case OpDecorate, OpDecorateString:
			if d, ok := group[in.Arg(0)]; ok {
				group[in.Arg(0)] = append(d, in)
				continue
			}
			out = append(out, *in)

		default:
			out = append(out, *in)
		}
	}

	m.Annotations = out
	return true
}

func (p *parser) noGroup(in *Inst) bool {
	p.op, p.off, p.line = in.Op, in.Off, Line{}
	return p.refuse(codeGroup, "%%%d is no decoration group", in.Arg(0))
}
