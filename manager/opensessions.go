package manager

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"capgpu/gpuerr"
)

// maxOpenSessions bounds the manager's memory of a driver that does not record the end of
// sessions.
const maxOpenSessions = 1 << 16

// openSessions knows the sessions of one driver that have no recorded end. A dead driver
// records nothing; the manager then records session.lost for it.
type openSessions struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[uint64]*openSession // by number of session.attach
	// +checklocks:mu
	asked map[uint64]*attachRecord // requested of the driver, not yet answered
	// +checklocks:mu
	driverEnded bool // the driver has ended

	recording sync.WaitGroup // session.attach records that are being written
}

// openSession is a session that was attached, with its tenant and rights.
type openSession struct {
	tenant   string
	by       *connection // opened the session, and is busy until the session ends
	facet    uint32
	programs []string // empty: all
	endCause error    // why the policy ends it; nil: it does not
}

// attachRecord is a session.attach that may have to be written.
type attachRecord struct {
	once   recordOnce
	record func() error
}

func newOpenSessions() *openSessions {
	return &openSessions{open: map[uint64]*openSession{}, asked: map[uint64]*attachRecord{}}
}

// ask notes that the driver is asked for a session. record writes its session.attach, before
// the client has the session and before the driver's first record of it. A refused session
// has none.
func (t *openSessions) ask(session uint64, record func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[session] = &attachRecord{record: record}
}

// attach records a session and adds it. Its connection is busy until the session ends.
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

// errTooManyOpen refuses a session that the manager could not end.
var errTooManyOpen = gpuerr.New(gpuerr.Busy, "the driver has %d sessions whose end it has not recorded; an operator can replace it with gpuctl upgrade", maxOpenSessions)

// markEnding calls refuse for each session, and notes those that have to end with the error
// that it returns. It returns the newly noted ones by tenant. It sees every session that has
// begun.
func (t *openSessions) markEnding(refuse func(*openSession) error) map[string][]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	byTenant := map[string][]uint64{}
	for session, o := range t.open {
		if o.endCause != nil {
			continue // it was ended before, or its driver was
		}
		if o.endCause = refuse(o); o.endCause != nil {
			byTenant[o.tenant] = append(byTenant[o.tenant], session)
		}
	}
	return byTenant
}

// count returns how many of a tenant's sessions markEnding would return.
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

// endCause returns why a session has to end, or nil.
func (t *openSessions) endCause(session uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.open[session]; o != nil {
		return o.endCause
	}
	return nil
}

// errAttachLost is the error for a session that ended, with or without its driver, before the
// client had it.
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

// observe learns from a driver's records which session it has opened or ended. These are the
// driver's claims, and only records of the sessions depend on them.
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
			_ = r.once.do(r.record) // attach returns the error
		}
		return
	}
}

// lost removes all sessions, because the driver has ended, and returns their number, by
// tenant and in all. No session is attached afterwards.
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

// recordOnce writes the record that a grant needs before its first use, once. If that fails,
// the next use tries again.
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

// recordGrant records a window or a vector before the driver holds it.
func (g *grants) recordGrant(r *recordOnce, kind, format string, args ...any) error {
	return r.do(func() error {
		_, err := g.logs.device.Append(kind, "", g.tag()+" "+fmt.Sprintf(format, args...))
		if err != nil {
			return errNotRecorded(err)
		}
		return nil
	})
}
