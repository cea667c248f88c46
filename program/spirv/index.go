package spirv

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// index finds names and decorations.
type index struct {
	names   []uint32 // by id: 1 + index in Debug of its first OpName
	members []indexed
	decos   []indexed
}

// indexed is an instruction of Debug or Annotations, by what it is about. Lists
// are in order of key, and within that of the module.
type indexed struct {
	key uint64
	at  uint32
}

// maxMembers is the largest number of members that the words of an OpTypeStruct can
// name.
const maxMembers = 0xffff - 2

func memberKey(id ID, member uint32) uint64 { return uint64(id)<<32 | uint64(member) }

// decoKey is the key of a member's decoration; with member -1, of an id's. No
// decoration of the grammar is above 16 bits, which a test checks.
func decoKey(id ID, member int, d Decoration) uint64 {
	return uint64(id)<<32 | uint64(uint16(member+1))<<16 | uint64(uint16(d))
}

func (x *index) build(p *parser) bool {
	m := p.m
	x.names = make([]uint32, m.Bound)
	for i := range m.Debug {
		in := &m.Debug[i]
		switch in.Op {
		case OpName:
			if at := &x.names[in.Args[0]]; *at == 0 {
				*at = uint32(i + 1)
			}
		case OpMemberName:
			if !p.member(in) {
				return false
			}
			x.members = append(x.members, indexed{memberKey(in.Arg(0), in.Args[1]), uint32(i)})
		}
	}

	x.decos = make([]indexed, 0, len(m.Annotations))
	for i := range m.Annotations {
		in := &m.Annotations[i]
		key := uint64(0)
		switch in.Op {
		case OpMemberDecorate, OpMemberDecorateString:
			if !p.member(in) {
				return false
			}
			key = decoKey(in.Arg(0), int(in.Args[1]), Decoration(in.Args[2]))
		default:
			key = decoKey(in.Arg(0), -1, Decoration(in.Args[1]))
		}
		x.decos = append(x.decos, indexed{key, uint32(i)})
	}

	sortIndex(x.members)
	sortIndex(x.decos)
	for i := 1; i < len(x.decos); i++ {
		a, b := x.decos[i-1], x.decos[i]
		if in := &m.Annotations[b.at]; a.key == b.key && !slices.Equal(m.Annotations[a.at].Args, in.Args) {
			p.op, p.off, p.line = in.Op, in.Off, Line{}
			return p.refuse(codeDecorations, "another decoration of %%%d as %s says otherwise", in.Arg(0), Decoration(a.key&0xffff))
		}
	}

	return true
}

// member checks the index of a member's name or decoration.
func (p *parser) member(in *Inst) bool {
	if in.Args[1] < maxMembers {
		return true
	}
	p.op, p.off, p.line = in.Op, in.Off, Line{}
	return p.refuse(codeMember, "member %d of %%%d", in.Args[1], in.Arg(0))
}

func sortIndex(list []indexed) {
	slices.SortFunc(list, func(a, b indexed) int {
		if c := cmp.Compare(a.key, b.key); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
}

func find(list []indexed, key uint64, in []Inst) (*Inst, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].key >= key })
	if i == len(list) || list[i].key != key {
		return nil, false
	}
	return &in[list[i].at], true
}

// Name is id's OpName, safe to print; without one it is "%12".
func (m *Module) Name(id ID) string {
	if name := m.rawName(id); name != "" {
		return printable(name)
	}
	return "%" + strconv.FormatUint(uint64(id), 10)
}

// rawName is id's OpName as it is; "" without one.
func (m *Module) rawName(id ID) string {
	if uint64(id) >= uint64(len(m.index.names)) || m.index.names[id] == 0 {
		return ""
	}
	text, _ := Text(m.Debug[m.index.names[id]-1].Args[1:])
	return text
}

// MemberName is the OpMemberName of member i of structure id, safe to print;
// without one it is its index.
func (m *Module) MemberName(id ID, i int) string {
	if i >= 0 && i < maxMembers {
		if in, ok := find(m.index.members, memberKey(id, uint32(i)), m.Debug); ok {
			if text, _ := Text(in.Args[2:]); text != "" {
				return printable(text)
			}
		}
	}
	return strconv.Itoa(i)
}

// Source is a line as "reduce.comp:12"; "" where it is not known.
func (m *Module) Source(l Line) string {
	d := m.Def(l.File)
	if d == nil || d.Op != OpString {
		return ""
	}
	file, _ := Text(d.Args)
	return printable(path.Base(file)) + ":" + strconv.FormatUint(uint64(l.Line), 10)
}

// Decoration is the OpDecorate, OpDecorateId or OpDecorateString of id by d: its
// Args are the target, the decoration, and what that takes. If there are several
// they are equal, and it is the first.
func (m *Module) Decoration(id ID, d Decoration) (*Inst, bool) {
	if d > 0xffff {
		return nil, false
	}
	return find(m.index.decos, decoKey(id, -1, d), m.Annotations)
}

// MemberDecoration is the OpMemberDecorate or OpMemberDecorateString of a member
// by d: its Args are the structure, the member, the decoration, and what that
// takes.
func (m *Module) MemberDecoration(id ID, member int, d Decoration) (*Inst, bool) {
	if d > 0xffff || member < 0 || member >= maxMembers {
		return nil, false
	}
	return find(m.index.decos, decoKey(id, member, d), m.Annotations)
}

// IsGLSL reports whether set is an import of GLSL.std.450.
func (m *Module) IsGLSL(set ID) bool {
	d := m.Def(set)
	return d != nil && d.Op == OpExtInstImport && len(d.Args) == 4 &&
		d.Args[0] == 0x4c534c47 && d.Args[1] == 0x6474732e && d.Args[2] == 0x3035342e && d.Args[3]&0xff == 0
}

// Text is the string literal at the start of words (specification, 2.2.1), and
// how many words it takes. A string that does not end takes all of them.
func Text(words []uint32) (string, int) {
	var b strings.Builder
	for i, w := range words {
		for range 4 {
			if w&0xff == 0 {
				return b.String(), i + 1
			}
			b.WriteByte(byte(w))
			w >>= 8
		}
	}
	return b.String(), len(words)
}

// printable makes a string of a module safe for a message or a log: one line, of
// bounded length.
func printable(s string) string {
	const most = 256
	if len(s) > most {
		end := most
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
