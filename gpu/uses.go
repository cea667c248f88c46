package gpu

import "capgpu/gpu/backend"

// What jobs and lists do with buffers, and so which needs what of which.

// eachBuffer calls f for each buffer that the job uses, and what it does with it, until
// that returns false. A buffer may come more than once.
func (j *job) eachBuffer(f func(*buffer, backend.Access) bool) {
	if l := j.list; l != nil {
		for b, access := range l.uses {
			if !f(b, access) {
				return
			}
		}
		return
	}
	for i, b := range j.buffers {
		if !f(b, j.access(i)) {
			return
		}
	}
}

// access is what the job does with its i-th buffer.
func (j *job) access(i int) backend.Access {
	switch {
	case j.work.Op == backend.OpLaunch && j.program != nil && i < len(j.program.info.Bindings):
		return j.program.info.Bindings[i].Access
	case j.work.Op == backend.OpLaunch || i == 0:
		return backend.Write
	}
	return backend.Read
}

// reads reports whether the job reads a buffer.
func (j *job) reads(b *buffer) bool {
	if j.list != nil {
		return j.list.uses[b]&backend.Read != 0
	}
	for i, used := range j.buffers {
		if used == b && j.access(i)&backend.Read != 0 {
			return true
		}
	}
	return false
}

// needs reports whether the job reads what an earlier one writes.
func (j *job) needs(earlier *job) bool {
	if earlier.list != nil {
		return earlier.list.feeds(j)
	}
	for i, b := range earlier.buffers {
		if earlier.access(i)&backend.Write != 0 && j.reads(b) {
			return true
		}
	}
	return false
}

// feeds reports whether a job reads what the list writes. It looks at the uses of the
// shorter one: engine.mu is held.
func (l *list) feeds(j *job) (yes bool) {
	if j.list != nil && len(l.uses) < len(j.list.uses) {
		for b, access := range l.uses {
			if access&backend.Write != 0 && j.list.uses[b]&backend.Read != 0 {
				return true
			}
		}
		return false
	}
	j.eachBuffer(func(b *buffer, access backend.Access) bool {
		yes = access&backend.Read != 0 && l.uses[b]&backend.Write != 0
		return !yes
	})
	return yes
}
