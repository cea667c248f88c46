package manager

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// maxTally bounds what a driver can have us remember by not recording the end
// of sessions.
const maxTally = 1 << 16

// tally knows the sessions of one driver of which no end is recorded. A driver
// that dies records nothing any more: then the manager does it, session.lost.
type tally struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[uint64]opened // by number of session.attach
}

// opened is a session that is there.
type opened struct {
	tenant string
	by     *idleWatch // of the connection that opened it: busy while it is there
}

func newTally() *tally { return &tally{open: map[uint64]opened{}} }

func (t *tally) begin(session uint64, tenant string, by *idleWatch) {
	by.begin()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) < maxTally {
		t.open[session] = opened{tenant: tenant, by: by}
	}
}

func (t *tally) end(session uint64) {
	t.mu.Lock()
	o, there := t.open[session]
	delete(t.open, session)
	t.mu.Unlock()
	if there {
		o.by.done()
	}
}

// heard reads, of what a driver records, which session has ended. It is the
// driver's claim, and only these records depend on it.
func (t *tally) heard(kind, detail string) {
	if kind != "session.close" {
		return
	}
	for field := range strings.FieldsSeq(detail) {
		name, value, _ := strings.Cut(field, "=")
		if session, err := strconv.ParseUint(value, 10, 64); name == "attach" && err == nil {
			t.end(session)
			return
		}
	}
}

// lost ends what is there, because the driver has ended, and returns how many sessions
// that were, by tenant and in all.
func (t *tally) lost() (byTenant map[string]int, total int) {
	t.mu.Lock()
	open := t.open
	t.open = map[uint64]opened{}
	t.mu.Unlock()
	byTenant = map[string]int{}
	for _, o := range open {
		byTenant[o.tenant]++
		o.by.done()
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
