package refmodel

// Data dependency: work that does not end ok spoils what it was to write, and work that
// was published before that was known, and reads it, does not run.

// Publish says that all completions until now were published before what comes next was:
// what comes next runs, whatever was spoiled.
func (s *Session) Publish() { clear(s.spoiled) }

// touch calls f with the buffers that an entry names, and what is done with each, as far
// as there are such.
func (s *Session) touch(e *Entry, args []uint64, f func(*Buffer, Access)) {
	buffer := func(handle uint64, a Access) {
		if b, known := find[Buffer](s, handle); known {
			f(b, a)
		}
	}
	switch e.op() {
	case OpLaunch:
		if p, known := find[Program](s, e.object()); known {
			for i := range min(int(e.count()), len(p.Access)) {
				buffer(args[4*i], p.Access[i])
			}
		}
	case OpCopy:
		buffer(e.object(), 2)
		buffer(e.b(), 1)
	case OpFill:
		buffer(e.object(), 2)
	case OpReplay:
		if l, known := find[List](s, e.object()); known && !l.dead {
			l.touch(f)
		}
	}
}

func (l *List) touch(f func(*Buffer, Access)) {
	for i := range l.entries {
		w := &l.entries[i]
		for k, x := range w.spans {
			switch {
			case w.program != nil:
				f(x.buffer, w.program.Access[k])
			case k == 0:
				f(x.buffer, 2)
			default:
				f(x.buffer, 1)
			}
		}
	}
}

// spoil notes what an entry that did not end ok was to write.
func (s *Session) spoil(e *Entry, args []uint64) {
	if !s.Spoils {
		return
	}
	s.touch(e, args, func(b *Buffer, a Access) {
		if a&2 != 0 {
			s.spoiled[b] = true
		}
	})
}

// readsSpoiled says that an entry is to read what is spoiled.
func (s *Session) readsSpoiled(e *Entry, args []uint64) (yes bool) {
	if len(s.spoiled) == 0 {
		return false
	}
	s.touch(e, args, func(b *Buffer, a Access) { yes = yes || a&1 != 0 && s.spoiled[b] })
	return yes
}
