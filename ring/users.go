package ring

import "sync/atomic"

// users is the user data of entries, kept by who pushes and read by who polls. Most clients
// number their entries, one by one: then it is known by the position of an entry, and takes
// no memory, of which many queues would have much. It is kept in places from the first entry
// on that has another one.
//
// Who reads has loaded Client.submitted since an entry was pushed, and then asked for a
// reader. A place is stored over when the driver says that it took an entry so far behind
// that this one's completion was taken. A driver that lies there has a client read user data
// of its own that are of another entry; each is one word, and read whole.
type users struct {
	places uint32                   // that there are once they are needed; a power of two
	first  uint64                   // user data of entry 0: that of others is as much behind it as they are
	kept   atomic.Pointer[[]uint64] // by position; nil: none was another one yet
}

// usersPerEntry is a power of two above 1 + completions/entries: there are entries that were
// not taken, and completions of those that were.
const usersPerEntry = 4

// keep keeps that of the entry at a position, before it is submitted.
func (u *users) keep(pos, user uint64) { u.keepRun(pos, user, 1) }

// keepRun is keep of n entries, 1 or more, whose user data count up from user.
func (u *users) keepRun(pos, user uint64, n int) {
	kept := u.kept.Load()
	if kept == nil {
		if pos == 0 {
			u.first = user
		}
		if user == u.first+pos {
			return
		}
		kept = u.unfold(pos)
	}
	for i := range uint64(n) {
		storeUser(userAt(*kept, pos+i), user+i)
	}
}

// unfold makes the places, with all that was kept before a position.
func (u *users) unfold(pos uint64) *[]uint64 {
	kept := make([]uint64, u.places)
	for i := pos - min(pos, uint64(len(kept))); i < pos; i++ {
		*userAt(kept, i) = u.first + i
	}
	u.kept.Store(&kept)
	return &kept
}

func userAt(kept []uint64, pos uint64) *uint64 { return &kept[pos&uint64(len(kept)-1)] }

// userReader reads that of the entries that were submitted when it was made.
type userReader struct {
	kept  []uint64
	first uint64
}

// reader is for so many entries. Without any nothing is kept yet.
func (u *users) reader(submitted uint64) userReader {
	if submitted == 0 {
		return userReader{}
	}
	if kept := u.kept.Load(); kept != nil {
		return userReader{kept: *kept}
	}
	return userReader{first: u.first}
}

func (r *userReader) of(pos uint64) uint64 {
	if r.kept == nil {
		return r.first + pos
	}
	return loadUser(userAt(r.kept, pos))
}
