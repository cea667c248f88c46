package kernelgen

import "time"

// Shrink removes parts of a kernel for as long as it still fails and there is time.
// The kernel is changed in place and ends as the smallest one that was seen to
// fail. A kernel that does not compile does not fail.
func (k *Kernel) Shrink(limit time.Duration, fails func() bool) {
	s := &shrinker{k: k, end: time.Now().Add(limit), fails: fails}
	for more := true; more && s.time(); {
		more = s.statements()
		more = s.unwrap() || more
		more = s.expressions() || more
	}
}

type shrinker struct {
	k     *Kernel
	end   time.Time
	fails func() bool
}

func (s *shrinker) time() bool { return time.Now().Before(s.end) }

func (s *shrinker) blocks() []*block {
	var all []*block
	s.k.walk(func(b *block) { all = append(all, b) })
	return all
}

// statements deletes runs of statements, long ones first. It reports whether it
// made progress.
func (s *shrinker) statements() bool {
	progress := false
	longest := 1
	for _, b := range s.blocks() {
		longest = max(longest, len(b.stmts))
	}

	for n := longest; n > 0; n /= 2 {
		for _, b := range s.blocks() {
			// From the end, because later statements use earlier ones.
			for at := len(b.stmts) - n; at >= 0 && s.time(); at -= n {
				if at+n <= len(b.stmts) && s.without(b, at, n) {
					progress = true
				}
			}
		}
	}

	return progress
}

func (s *shrinker) without(b *block, at, n int) bool {
	old := b.stmts
	b.stmts = append([]*stmt{}, old[:at]...)
	for i, st := range old[at:] {
		if i >= n || st.pinned {
			b.stmts = append(b.stmts, st)
		}
	}
	if len(b.stmts) < len(old) && s.fails() {
		return true
	}
	b.stmts = old
	return false
}

// unwrap replaces a statement by one of its blocks.
func (s *shrinker) unwrap() bool {
	progress := false
	for _, b := range s.blocks() {
		for at := 0; at < len(b.stmts) && s.time(); at++ {
			for _, inner := range b.stmts[at].blocks {
				old := b.stmts
				b.stmts = append(append(append([]*stmt{}, old[:at]...), inner.stmts...), old[at+1:]...)
				if s.fails() {
					progress = true
					break
				}
				b.stmts = old
			}
		}
	}
	return progress
}

// expressions replaces expressions by 0, by 1, or by a part of themselves.
func (s *shrinker) expressions() bool {
	progress := false
	var visit func(e *expr)
	visit = func(e *expr) {
		for again := true; again && s.time(); {
			again = false
			for _, candidate := range smaller(e) {
				old := *e
				*e = *candidate
				if s.fails() {
					progress, again = true, true
					break
				}
				*e = old
			}
		}
		for _, a := range e.args {
			visit(a)
		}
	}

	for _, b := range s.blocks() {
		for _, st := range b.stmts {
			for _, e := range st.args {
				visit(e)
			}
		}
	}

	return progress
}

// smaller are the simpler expressions that could stand for e.
func smaller(e *expr) []*expr {
	if len(e.args) == 0 {
		return nil
	}

	all := []*expr{{t: e.t, form: plain(e.t, "0")}, {t: e.t, form: plain(e.t, "1")}}
	var in func(a *expr)
	in = func(a *expr) {
		if a.t == e.t {
			all = append(all, a)
			return
		}
		for _, b := range a.args {
			in(b)
		}
	}

	for _, a := range e.args {
		in(a)
	}

	return all
}

// plain is a value of a type with 0, or 1, in all scalars.
func plain(t *typ, digit string) string {
	form := t.name + "("
	switch t.kind {
	case kindStruct:
		for i, f := range t.fields {
			if i > 0 {
				form += ", "
			}
			form += plain(f, digit)
		}

	case kindArray:
		for i := range t.length {
			if i > 0 {
				form += ", "
			}
			form += plain(t.elem, digit)
		}

	default:
		form += digit
	}

	return form + ")"
}
