package manager

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"capgpu/gpuerr"
)

// maxTally bounds what a driver can have us remember by not recording the end
// of sessions.
const maxTally = 1 << 16

// tally knows the sessions of one driver of which no end is recorded. A driver
// that dies records nothing any more: then the manager does it, session.lost.
type tally struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[uint64]*opened // by number of session.attach
	// +checklocks:mu
	asked map[uint64]*attachRecord // sessions that the driver was asked for and has not answered
	// +checklocks:mu
	over bool // the driver has ended

	recording sync.WaitGroup // session.attach that are written
}

// opened is a session that was attached: whose it is, and what it may do.
type opened struct {
	tenant   string
	by       *connection // through which it was opened: busy while the session is there
	facet    uint32
	programs []string // empty: all
	ending   error    // why the policy has it end; nil: it does not
}

// attachRecord is a session.attach that may be due.
type attachRecord struct {
	once   recordOnce
	record func() error
}

func newTally() *tally {
	return &tally{open: map[uint64]*opened{}, asked: map[uint64]*attachRecord{}}
}

// ask notes that the driver is asked for a session. record makes its session.attach,
// which is there before the client has the session, and before the driver's first record
// of it; of one that is refused there is none.
func (t *tally) ask(session uint64, record func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[session] = &attachRecord{record: record}
}

// attach records a session and has it among those that are there. Its connection is busy
// until its end.
func (t *tally) attach(session uint64, o opened) error {
	t.mu.Lock()
	r := t.asked[session]
	if t.over || r == nil {
		t.mu.Unlock()
		return errAttachLost
	}
	t.recording.Add(1)
	defer t.recording.Done()
	if len(t.open) >= maxTally {
		t.mu.Unlock()
		return errTallyFull
	}
	o.by.idle.begin()
	t.open[session] = &o
	t.mu.Unlock()
	if err := r.once.do(r.record); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.asked, session)
	return nil
}

// errTallyFull is of a session that nobody could end any more.
var errTallyFull = gpuerr.New(gpuerr.Busy, "the driver has %d sessions whose end it has not recorded; an operator can replace it with gpuctl upgrade", maxTally)

// condemn notes of each session whether it has to end, which refuse says (nil: no), and
// returns those that do now, by tenant. It sees every session that has begun.
func (t *tally) condemn(refuse func(*opened) error) map[string][]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	byTenant := map[string][]uint64{}
	for session, o := range t.open {
		if o.ending != nil {
			continue // and it has been ended, or its driver has
		}
		if o.ending = refuse(o); o.ending != nil {
			byTenant[o.tenant] = append(byTenant[o.tenant], session)
		}
	}
	return byTenant
}

// count is the number of a tenant's sessions that a condemn would name.
func (t *tally) count(tenant string, refuse func(*opened) error) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.open {
		if o.tenant == tenant && o.ending == nil && refuse(o) != nil {
			n++
		}
	}
	return n
}

// condemned is why a session has to end, or nil.
func (t *tally) condemned(session uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.open[session]; o != nil {
		return o.ending
	}
	return nil
}

// errAttachLost is of a session that has ended, with its driver or without, before it
// was anybody's.
var errAttachLost = gpuerr.New(gpuerr.Busy, "the session ended while it was opened; wait for the device's next state and open it again")

func (t *tally) end(session uint64) {
	t.mu.Lock()
	o, there := t.open[session]
	delete(t.open, session)
	delete(t.asked, session)
	t.mu.Unlock()
	if there {
		o.by.idle.done()
	}
}

// heard reads, of what a driver records, which session it has opened and which has
// ended. It is the driver's claim, and only these records depend on it.
func (t *tally) heard(kind, detail string) {
	if kind != "session.open" && kind != "session.close" {
		return
	}
	for field := range strings.FieldsSeq(detail) {
		name, value, _ := strings.Cut(field, "=")
		session, err := strconv.ParseUint(value, 10, 64)
		if name != "attach" || err != nil {
			continue
		}
		if kind == "session.close" {
			t.end(session)
			return
		}
		t.mu.Lock()
		r := t.asked[session]
		t.mu.Unlock()
		if r != nil {
			_ = r.once.do(r.record) // attach tells what came of it
		}
		return
	}
}

// lost ends what is there, because the driver has ended, and returns how many sessions
// that were, by tenant and in all. None is attached any more.
func (t *tally) lost() (byTenant map[string]int, total int) {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.recording.Wait()
	t.mu.Lock()
	open := t.open
	t.open = map[uint64]*opened{}
	t.mu.Unlock()
	byTenant = map[string]int{}
	for _, o := range open {
		byTenant[o.tenant]++
		o.by.idle.done()
	}
	return byTenant, len(open)
}

// recordOnce makes the record that a grant needs before its first use, once. A
// record that failed is tried again by the next use.
type recordOnce struct {
	mu sync.Mutex
	// +checklocks:mu
	done bool
}

func (r *recordOnce) do(record func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	err := record()
	r.done = err == nil
	return err
}

// recordGrant records that the driver holds a window or a vector, before it does.
func (g *grants) recordGrant(r *recordOnce, kind, format string, args ...any) error {
	return r.do(func() error {
		_, err := g.audit.Append(kind, "", g.tag()+" "+fmt.Sprintf(format, args...))
		if err != nil {
			return errNotRecorded(err)
		}
		return nil
	})
}
