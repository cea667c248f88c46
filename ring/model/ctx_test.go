package model

import "fmt"

// ctx is what a step acts through.
type ctx struct {
	m       *machine
	s       *state
	t       int // the thread
	choice  int // what choose answers
	choices int // how many choices there were
	local   bool
	shared  bool
	blocked bool
	next    int
	failed  string // the property
	detail  string
	log     *[]string // what was done, for a trace; nil: nobody reads it
}

func (x *ctx) say(format string, args ...any) {
	if x.log != nil {
		*x.log = append(*x.log, fmt.Sprintf(format, args...))
	}
}

func (x *ctx) touch() {
	if x.shared || x.local {
		panic("a step with too many accesses")
	}
	x.shared = true
}

func (x *ctx) get(r reg) uint8    { return x.s.vars[x.t][r] }
func (x *ctx) set(r reg, v uint8) { x.s.vars[x.t][r] = v }
func (x *ctx) jump(l *label)      { x.next = l.pc }
func (x *ctx) block()             { x.blocked = true }

// choose is a free choice of 0 to n-1: the exploration makes each. Once a step.
func (x *ctx) choose(n int) int {
	x.choices = n
	x.say("choose %d of %d", x.choice+1, n)
	return x.choice
}

func (x *ctx) fail(property, format string, args ...any) {
	if x.failed == "" {
		x.failed, x.detail = property, fmt.Sprintf(format, args...)
		x.say("FAILS: %s", x.detail)
	}
}

// load is an atomic load with acquire: nothing later in the program is before it.
func (x *ctx) load(w word) uint8 {
	x.touch()
	s := x.s
	for i := int(s.n[x.t]) - 1; i >= 0; i-- {
		if p := s.buf[x.t][i]; p.w == w {
			x.say("load %s = %d, its own store", x.m.words[w], p.v)
			return p.v
		}
	}
	x.say("load %s = %d", x.m.words[w], s.mem[w])
	return s.mem[w]
}

// store is seen by others later: when the buffer drains. For all but the slots it
// is a release.
func (x *ctx) store(w word, v uint8) {
	s := x.s
	if s.n[x.t] == maxBuffer {
		x.block()
		return
	}
	s.buf[x.t][s.n[x.t]] = pending{w, v}
	s.n[x.t]++
	x.say("store %s ← %d, not yet seen", x.m.words[w], v)
}

// fence blocks until the thread's own stores are seen. It counts as the access.
func (x *ctx) fence() bool {
	x.touch()
	s := x.s
	if n := s.n[x.t]; n > 0 {
		for _, p := range s.buf[x.t][:n] {
			if !x.m.reduced || !x.m.plain[p.w] {
				x.block()
				return false
			}
		}
		x.drainUntil(int(n))
	}
	return true
}

// drainUntil lets others see the first n pending stores.
func (x *ctx) drainUntil(n int) {
	for range n {
		b := &x.s.buf[x.t]
		p := b[0]
		copy(b[:], b[1:])
		x.s.n[x.t]--
		b[x.s.n[x.t]] = pending{}
		x.write(p.w, p.v)
	}
}

// peek is a load that no other thread can tell the moment of.
func (x *ctx) peek(w word) uint8 {
	x.say("read %s = %d", x.m.words[w], x.s.mem[w])
	return x.s.mem[w]
}

// swap and cas wait until the thread's own stores are seen.
func (x *ctx) swap(w word, v uint8) uint8 {
	if !x.fence() {
		return 0
	}
	old := x.s.mem[w]
	x.say("swap %s %d → %d", x.m.words[w], old, v)
	x.write(w, v)
	return old
}

func (x *ctx) cas(w word, old, v uint8) bool {
	if !x.fence() {
		return false
	}
	if x.s.mem[w] != old {
		x.say("compare-and-swap %s fails, it is %d", x.m.words[w], x.s.mem[w])
		return false
	}
	x.say("compare-and-swap %s %d → %d", x.m.words[w], old, v)
	x.write(w, v)
	return true
}

func (x *ctx) write(w word, v uint8) {
	x.m.written(x, w, v)
	x.s.mem[w] = v
}

// signal writes to a pipe. The kernel takes the pipe's lock: own stores are seen
// before. Many wakes are as one.
func (x *ctx) signal(p pipe) {
	if !x.fence() {
		return
	}
	x.s.pipe[p] |= token
	x.say("signal %s", x.m.pipes[p])
}

// hangUp closes the writing end.
func (x *ctx) hangUp(p pipe) {
	x.touch()
	x.s.pipe[p] |= eof
	x.say("close %s", x.m.pipes[p])
}

// woken empties a pipe, and says whether there was something.
func (x *ctx) woken(p pipe) bool {
	if x.s.pipe[p]&token == 0 {
		return false
	}
	x.s.pipe[p] &^= token
	x.say("woken by %s", x.m.pipes[p])
	return true
}

// slept is woken, but what woke it may stay in the pipe: of a wait that the poller woke it
// does, until drain, or the next wait.
func (x *ctx) slept(p pipe, stays bool) bool {
	if stays && x.s.pipe[p]&token != 0 {
		x.say("woken by %s, and leaves it", x.m.pipes[p])
		return true
	}
	return x.woken(p)
}

// drain takes what may have stayed.
func (x *ctx) drain(p pipe) {
	x.touch()
	if x.s.pipe[p]&token != 0 && x.choose(2) == 0 {
		x.say("drain %s", x.m.pipes[p])
		x.s.pipe[p] &^= token
	}
}
