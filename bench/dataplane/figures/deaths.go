package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/service"
)

// deaths is a service with drivers that are killed, and its clients.
type deaths struct {
	svc     *service.Service
	cold    *peers.Cold
	clients []*survivor
	working sync.WaitGroup

	kills, recovered, warm int
	firsts, lasts          []float64 // of each kill, in nanoseconds: until a client has recovered, and until all have
}

// settle waits until every client has reached that epoch and a standby waits.
func (d *deaths) settle(epoch uint64) error {
	for _, s := range d.clients {
		if _, err := s.await(epoch, time.Now().Add(longestRecovery)); err != nil {
			return err
		}
	}
	d.awaitStandby()
	return nil
}

const (
	// standbyTime is above the time to spawn a standby on a busy machine.
	standbyTime = 5 * time.Second
	// quietTime: a standby that has used no CPU for so long is warm.
	quietTime = 50 * time.Millisecond
)

// awaitStandby waits for a warm standby, and reports whether there is one: without
// it a death is measured as well.
func (d *deaths) awaitStandby() (warm bool) {
	var last time.Duration
	quiet := time.Now()
	for end := time.Now().Add(standbyTime); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		pid, err := d.svc.StandbyPID()
		if err != nil {
			quiet = time.Now()
			continue
		}
		used, err := service.CoarseCPUTime(pid)
		if err != nil || used != last {
			last, quiet = used, time.Now()
			continue
		}
		if time.Since(quiet) >= quietTime {
			return true
		}
	}

	return false
}

// left is the service's holdings besides the clients' parts.
type left struct {
	drivers, standbys, zombies int
	descriptors                int // of the manager, except memory made in advance
	cells                      int // cgroups below the manager's
	bytes                      float64
}

// holdings samples until two samples agree: resources that are being given back are
// not left over.
func (d *deaths) holdings() (l left, err error) {
	var last left
	for end := time.Now().Add(settle); ; time.Sleep(50 * time.Millisecond) {
		if l, err = d.look(); err == nil && l == last {
			return l, nil
		}
		last = l
		if time.Now().After(end) {
			return l, err
		}
	}
}

func (d *deaths) look() (l left, err error) {
	children, err := d.svc.Children()
	if err != nil {
		return l, err
	}

	for _, c := range children {
		switch {
		case c.State == "Z":
			l.zombies++
		case c.Driver:
			l.drivers++
		default:
			l.standbys++
		}
	}

	h, err := service.HoldingsOf(d.svc.ManagerPID())
	if err != nil {
		return l, err
	}

	memories := 0
	for _, m := range h.Memories {
		if strings.HasPrefix(m.Name, dmaName) {
			memories++
			l.bytes += float64(m.Bytes)
		}
	}

	l.descriptors = h.Descriptors - memories
	l.cells = cells(d.svc.ManagerPID())
	return l, nil
}

// cells counts the cgroups that a manager has made for its children; 0 if it makes
// none.
func cells(manager int) (n int) {
	trees, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/capgpu-*%d.*/*/*", manager))
	more, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/capgpu-*%d.*/*/*", manager))
	for _, path := range append(trees, more...) {
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			n++
		}
	}
	return n
}

// leftovers are the growing holdings.
type leftovers struct {
	sum  float64
	what string
}

// leaks compares the holdings now and before, with the same clients at work.
func (d *deaths) leaks(before left) (l leftovers, err error) {
	now, err := d.holdings()
	if err != nil {
		return l, err
	}

	add := func(what string, was, is float64) {
		l.sum += max(is-was, 0)
		l.what += fmt.Sprintf("%s %g (%g before), ", what, is, was)
	}

	add("drivers", 1, float64(now.drivers))
	add("standbys", 1, float64(now.standbys))
	add("zombies", 0, float64(now.zombies))
	add("descriptors of the manager", float64(before.descriptors), float64(now.descriptors))
	add("cgroups", float64(before.cells), float64(now.cells))
	add("bytes of device memory", before.bytes, now.bytes)
	l.what = strings.TrimSuffix(l.what, ", ")
	return l, nil
}

// end ends the clients; their context has ended.
func (d *deaths) end() error {
	d.working.Wait()
	var errs []error
	for _, s := range d.clients {
		errs = append(errs, s.failed(), s.conn.Close())
	}
	return errors.Join(errs...)
}
