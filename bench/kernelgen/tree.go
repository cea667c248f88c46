package kernelgen

import "strings"

// expr is an expression: a template, in which $0 to $9 stand for args.
type expr struct {
	t    *typ
	form string
	args []*expr
}

// stmt is a statement, or a declaration: a template, in which $0 to $9 stand for
// args and @0 to @9, at the start of a line, for blocks.
type stmt struct {
	form   string
	args   []*expr
	blocks []*block
	// pinned statements are never taken out: without them others would mean
	// something else.
	pinned bool
}

type block struct{ stmts []*stmt }

func (b *block) add(s *stmt) { b.stmts = append(b.stmts, s) }

func (e *expr) print(w *strings.Builder) { expand(w, e.form, e.args, nil, "") }

func (b *block) print(w *strings.Builder, indent string) {
	for _, s := range b.stmts {
		w.WriteString(indent)
		expand(w, s.form, s.args, s.blocks, indent)
		w.WriteByte('\n')
	}
}

func expand(w *strings.Builder, form string, args []*expr, blocks []*block, indent string) {
	for i := 0; i < len(form); i++ {
		c := form[i]
		switch {
		case c == '$':
			i++
			args[form[i]-'0'].print(w)
		case c == '@':
			i++
			blocks[form[i]-'0'].print(w, indent+"\t")
			w.WriteString(indent)
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
