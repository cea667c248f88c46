package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one file: text instead of the bytes from..to.
type mutant struct {
	file     string
	before   []byte // the whole file
	from, to int
	text     string
	kind     string
	line     int
}

// source is the changed file.
func (m *mutant) source() []byte {
	return bytes.Join([][]byte{m.before[:m.from], []byte(m.text), m.before[m.to:]}, nil)
}

// lines are the lines that it touches, before and after, on one line each.
func (m *mutant) lines() (before, after string) {
	start := bytes.LastIndexByte(m.before[:m.from], '\n') + 1
	end := len(m.before)
	if n := bytes.IndexByte(m.before[m.to:], '\n'); n >= 0 {
		end = m.to + n
	}
	flat := func(parts ...string) string { return strings.Join(strings.Fields(strings.Join(parts, "")), " ") }
	head, tail := string(m.before[start:m.from]), string(m.before[m.to:end])
	return flat(head, string(m.before[m.from:m.to]), tail), flat(head, m.text, tail)
}

// key names it in equivalent.txt, without the line number, which changes.
func (m *mutant) key(dir string) string {
	before, after := m.lines()
	return fmt.Sprintf("%s/%s: %s ⇒ %s", filepath.Base(dir), filepath.Base(m.file), before, after)
}

func (m *mutant) String() string {
	before, after := m.lines()
	return fmt.Sprintf("%s:%d: %s\n  - %s\n  + %s", m.file, m.line, m.kind, before, after)
}

// Operators are replaced by those that a slip would put there.
var operators = map[token.Token][]string{
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"}, token.REM: {"/"},
	token.AND: {"|"}, token.OR: {"&"}, token.SHL: {">>"}, token.SHR: {"<<"}, token.AND_NOT: {"&"}, token.XOR: {"|"},
}

// mutants are the changes that a file offers.
func mutants(path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return mutantsOf(path, source)
}

func mutantsOf(path string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{path: path, source: source, files: files}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && fn.Name.Name != "String" { // its output is for people
			f.function(fn)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found, nil
}

type finder struct {
	path   string
	source []byte
	files  *token.FileSet
	found  []mutant
}

func (f *finder) add(kind string, from, to token.Pos, text string) {
	at, end := f.files.Position(from), f.files.Position(to)
	f.found = append(f.found, mutant{file: f.path, before: f.source, from: at.Offset, to: end.Offset, text: text, kind: kind, line: at.Line})
}

// function returns at once, where there is nothing to return.
func (f *finder) function(fn *ast.FuncDecl) {
	if fn.Type.Results == nil && len(fn.Body.List) > 0 {
		f.add("return early", fn.Body.Lbrace, fn.Body.Lbrace+1, "{ if len(\"x\") == 1 { return }; ")
	}
}

func (f *finder) visit(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		for _, other := range operators[x.Op] {
			f.add("operator", x.OpPos, x.OpPos+token.Pos(len(x.Op.String())), other)
		}
	case *ast.BasicLit:
		f.literal(x)
	case *ast.IfStmt:
		f.add("branch never", x.Cond.Pos(), x.Cond.Pos(), "false && ")
	case *ast.BlockStmt:
		f.statements(x.List)
	case *ast.CaseClause:
		f.statements(x.Body)
	case *ast.CommClause:
		f.statements(x.Body)
	case *ast.UnaryExpr:
		return x.Op != token.SUB // -1: a value that is returned beside an error
	case *ast.CallExpr:
		return !f.isMessage(x)
	}

	return true
}

// isMessage reports whether a call's arguments are for people: the text of an error or a log.
func (f *finder) isMessage(c *ast.CallExpr) bool {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	on, ok := sel.X.(*ast.Ident)
	return ok && (on.Name == "fmt" || on.Name == "errors" || on.Name == "gpuerr" && sel.Sel.Name == "New")
}

func (f *finder) literal(x *ast.BasicLit) {
	n, ok := new(big.Int).SetString(strings.ReplaceAll(x.Value, "_", ""), 0)
	if x.Kind != token.INT || !ok {
		return
	}
	for _, d := range []int64{1, -1} {
		if m := new(big.Int).Add(n, big.NewInt(d)); m.Sign() >= 0 {
			f.add("constant", x.Pos(), x.End(), m.String())
		}
	}
}

func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch x := s.(type) {
		case *ast.ExprStmt:
			f.remove("remove call", s)
		case *ast.DeferStmt, *ast.GoStmt:
			f.remove("remove statement", s)
		case *ast.AssignStmt:
			if x.Tok != token.DEFINE {
				f.remove("remove assignment", s)
			}
		case *ast.IncDecStmt:
			f.remove("remove step", s)
		case *ast.BranchStmt:
			if x.Tok != token.GOTO && x.Tok != token.FALLTHROUGH {
				f.remove("remove jump", s)
			}
		case *ast.ReturnStmt:
			f.ret(x)
		}
	}
}

func (f *finder) remove(kind string, s ast.Stmt) { f.add(kind, s.Pos(), s.End(), "") }

// ret returns the other truth, or no error.
func (f *finder) ret(x *ast.ReturnStmt) {
	if len(x.Results) == 0 {
		return
	}

	last := x.Results[len(x.Results)-1]
	switch y := last.(type) {
	case *ast.Ident:
		switch {
		case y.Name == "true":
			f.add("return value", y.Pos(), y.End(), "false")
		case y.Name == "false":
			f.add("return value", y.Pos(), y.End(), "true")
		case strings.HasPrefix(y.Name, "err"):
			f.add("return no error", y.Pos(), y.End(), "nil")
		}
	}
}
