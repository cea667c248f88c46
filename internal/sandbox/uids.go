package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// UIDRange is a range of user ids, and of the group ids with the same numbers.
type UIDRange struct {
	First, Count uint32
}

// DefaultUIDs lie where systemd leaves room (systemd.io/UIDS-GIDS: 1879048192 to
// 2147352575 are unused): no user, service or container has them.
var DefaultUIDs = UIDRange{First: 0x7a000000, Count: 65536}

// minUIDs is enough for the processes of one function, and some gates.
const minUIDs = 16

// Check returns an error if the range is not valid.
func (r UIDRange) Check() error {
	switch {
	case r.Count < minUIDs:
		return fmt.Errorf("a range of %d users is too small; every driver and every gate has one of its own, those that wait as well: have %d at least", r.Count, minUIDs)
	case r.First < 1000:
		return fmt.Errorf("users from %d on: those below 1000 are the system's", r.First)
	case uint64(r.First)+uint64(r.Count) > math.MaxInt32:
		return fmt.Errorf("users %d to %d: the last possible one is %d", r.First, uint64(r.First)+uint64(r.Count)-1, math.MaxInt32-1)
	}
	return nil
}

// free fails if the files of users and groups in a folder (/etc) know a number of
// the range, or have it set aside for containers. A file that is not there knows
// none.
func (r UIDRange) free(etc string) error {
	for _, f := range []struct {
		name         string
		first, count int // fields of a line; count -1: one number
	}{{"passwd", 2, -1}, {"group", 2, -1}, {"subuid", 1, 2}, {"subgid", 1, 2}} {
		text, err := os.ReadFile(filepath.Join(etc, f.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) <= max(f.first, f.count) {
				continue
			}
			first, err := strconv.ParseUint(fields[f.first], 10, 32)
			if err != nil {
				continue // "+", of NIS
			}
			count := uint64(1)
			if f.count >= 0 {
				if count, err = strconv.ParseUint(fields[f.count], 10, 32); err != nil {
					continue
				}
			}
			if first < uint64(r.First)+uint64(r.Count) && uint64(r.First) < first+count {
				return fmt.Errorf("sandbox.uids: users %d to %d: %s has %d for %s; take numbers that are nobody's", r.First, uint64(r.First)+uint64(r.Count)-1, filepath.Join(etc, f.name), first, fields[0])
			}
		}
	}

	return nil
}

// uidPool lends users. One that was given back is the last to be lent again.
type uidPool struct {
	first uint32
	count uint32

	mu sync.Mutex
	// +checklocks:mu
	next uint32
	// +checklocks:mu
	taken map[uint32]bool
}

func newUIDPool(r UIDRange) (*uidPool, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	// Several managers on one host (tests) start at different places.
	return &uidPool{first: r.First, count: r.Count, next: uint32(os.Getpid()) * 127 % r.Count, taken: map[uint32]bool{}}, nil
}

// take lends a user, unless that would leave less than spare ones.
func (p *uidPool) take(spare uint32) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uint32(len(p.taken)) >= p.count-spare {
		return 0, fmt.Errorf("%d of %d users of sandbox.uids are in use, and %d are kept for drivers; make the range larger", len(p.taken), p.count, spare)
	}
	for range p.count {
		uid := p.first + p.next
		p.next = (p.next + 1) % p.count
		if !p.taken[uid] {
			p.taken[uid] = true
			return uid, nil
		}
	}
	return 0, errors.New("a user of sandbox.uids is free and cannot be found") // it is counted by its entry
}

func (p *uidPool) give(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, uid)
}
