package manager

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"capgpu/gpuerr"
)

// maxOpenSessions bounds what a driver can have us remember by not recording the end
// of sessions.
const maxOpenSessions = 1 << 16

// openSessions knows the sessions of one driver of which no end is recorded. A driver
// that dies records nothing any more: then the manager does it, session.lost.
type openSessions struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[uint64]*openSession // by number of session.attach
	// +checklocks:mu
	asked map[uint64]*attachRecord // sessions that the driver was asked for and has not answered
	// +checklocks:mu
	driverEnded bool // the driver has ended

	recording sync.WaitGroup // session.attach that are written
}

// openSession is a session that was attached: whose it is, and what it may do.
type openSession struct {
	tenant   string
	by       *connection // through which it was opened: busy while the session is there
	facet    uint32
	programs []string // empty: all
	endCause error    // why the policy has it end; nil: it does not
}

// attachRecord is a session.attach that may be due.
type attachRecord struct {
	once   recordOnce
	record func() error
}

func newOpenSessions() *openSessions {
	return &openSessions{open: map[uint64]*openSession{}, asked: map[uint64]*attachRecord{}}
}

// ask notes that the driver is asked for a session. record makes its session.attach,
// which is there before the client has the session, and before the driver's first record
// of it; of one that is refused there is none.
func (t *openSessions) ask(session uint64, record func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[session] = &attachRecord{record: record}
}

// attach records a session and has it among those that are there. Its connection is busy
// until its end.
func (t *openSessions) attach(session uint64, o openSession) error {
	t.mu.Lock()
	r := t.asked[session]
	if t.driverEnded || r == nil {
		t.mu.Unlock()
		return errAttachLost
	}

	t.recording.Add(1)
	defer t.recording.Done()
	if len(t.open) >= maxOpenSessions {
		t.mu.Unlock()
		return errTooManyOpen
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

// errTooManyOpen is of a session that nobody could end any more.
var errTooManyOpen = gpuerr.New(gpuerr.Busy, "the driver has %d sessions whose end it has not recorded; an operator can replace it with gpuctl upgrade", maxOpenSessions)

// markEnding notes of each session whether it has to end, which refuse says (nil: no), and
// returns those that do now, by tenant. It sees every session that has begun.
func (t *openSessions) markEnding(refuse func(*openSession) error) map[string][]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	byTenant := map[string][]uint64{}
	for session, o := range t.open {
		if o.endCause != nil {
			continue // and it has been ended, or its driver has
		}
		if o.endCause = refuse(o); o.endCause != nil {
			byTenant[o.tenant] = append(byTenant[o.tenant], session)
		}
	}
	return byTenant
}

// count is the number of a tenant's sessions that a condemn would name.
func (t *openSessions) count(tenant string, refuse func(*openSession) error) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.open {
		if o.tenant == tenant && o.endCause == nil && refuse(o) != nil {
			n++
		}
	}
	return n
}

// endCause is why a session has to end, or nil.
func (t *openSessions) endCause(session uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.open[session]; o != nil {
		return o.endCause
	}
	return nil
}

// errAttachLost is of a session that has ended, with its driver or without, before it
// was anybody's.
var errAttachLost = gpuerr.New(gpuerr.Busy, "the session ended while it was opened; wait for the device's next state and open it again")

func (t *openSessions) end(session uint64) {
	t.mu.Lock()
	o, there := t.open[session]
	delete(t.open, session)
	delete(t.asked, session)
	t.mu.Unlock()
	if there {
		o.by.idle.done()
	}
}

// observe reads, of what a driver records, which session it has opened and which has
// ended. It is the driver's claim, and only these records depend on it.
func (t *openSessions) observe(kind, detail string) {
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
func (t *openSessions) lost() (byTenant map[string]int, total int) {
	t.mu.Lock()
	t.driverEnded = true
	t.mu.Unlock()
	t.recording.Wait()
	t.mu.Lock()
	open := t.open
	t.open = map[uint64]*openSession{}
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
