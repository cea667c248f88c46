package kernelgen

import "strings"

// expr is an expression: a template, in which $0 to $9 stand for args.
type expr struct {
	t    *typ
	form string
	args []*expr
}

// stmt is a statement, or a declaration: a template, in which $0 to $9 stand for
// args and @0 to @9, at the start of a line, for blocks. In both, # stands before
// the index of an array.
type stmt struct {
	form   string
	args   []*expr
	blocks []*block
	// pinned statements are never removed, because others would change their
	// meaning without them.
	pinned bool
}

type block struct{ stmts []*stmt }

func (b *block) add(s *stmt) { b.stmts = append(b.stmts, s) }

// printer writes a tree in a language; the zero one in GLSL.
type printer struct {
	strings.Builder
	openCL bool
}

func (w *printer) expr(e *expr) {
	form := e.form
	if w.openCL {
		form = wrapping(e)
	}
	w.expand(form, e.args, nil, "")
}

func (w *printer) block(b *block, indent string) {
	for _, s := range b.stmts {
		w.WriteString(indent)
		form := s.form
		if w.openCL {
			form = wrappingAssignment(s)
		}
		w.expand(form, s.args, s.blocks, indent)
		w.WriteByte('\n')
	}
}

func (w *printer) expand(form string, args []*expr, blocks []*block, indent string) {
	for i := 0; i < len(form); i++ {
		c := form[i]
		switch {
		case c == '$':
			i++
			w.expr(args[form[i]-'0'])

		case c == '@':
			i++
			w.block(blocks[form[i]-'0'], indent+"\t")
			w.WriteString(indent)

		case c == '#':
			if w.openCL {
				w.WriteString(".a")
			}

		case c == '\n':
			w.WriteByte('\n')
			if i+1 < len(form) && form[i+1] != '@' {
				w.WriteString(indent)
			}

		default:
			w.WriteByte(c)
		}
	}
}
