package manager_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/manager"
)

// logged is a manager with audit logs on disk.
type logged struct {
	*world
	path string
}

// startLogged runs a manager with logs of these bounds, and tenants with so many bytes of
// records a day.
func startLogged(t *testing.T, bounds audit.Options, share uint64) *logged {
	t.Helper()
	l := &logged{path: filepath.Join(t.TempDir(), "audit.log")}
	bounds.GroupFsync = 10 * time.Millisecond
	set, err := audit.OpenSet(l.path, bounds, bounds)
	require.NoError(t, err)
	l.world = start(t, func(c *manager.Config) {
		c.Audit = set
		c.Policy.Audit.DriverBytes = share
	})
	return l
}

// others returns the records that are neither in the log of the tenant limited nor in that of
// the driver, which is full of its tenants' mappings.
func (l *logged) others() (lines []string) {
	l.t.Helper()
	entries, err := audit.ReadAll(l.path)
	require.NoError(l.t, err)
	for _, e := range entries {
		if e.Log != "tenant-limited.log" && e.Log != "driver-mock0.log" {
			lines = append(lines, e.Log+" "+audit.Format(e.AuditRecord))
		}
	}
	return lines
}

// ofLimited counts the tenant limited's records of each kind, with the omitted ones.
func (l *logged) ofLimited() (recorded, omitted map[string]uint64) {
	l.t.Helper()
	recorded, omitted = map[string]uint64{}, map[string]uint64{}
	entries, err := audit.ReadAll(l.path)
	require.NoError(l.t, err)
	for _, e := range entries {
		if e.Log != "tenant-limited.log" {
			continue
		}
		recorded[e.Kind]++
		if e.Kind == "audit.omitted" {
			require.Equal(l.t, "limited", e.Tenant)
			kinds, err := manager.OmittedKinds(e.Detail)
			require.NoError(l.t, err)
			for kind, n := range kinds {
				omitted[kind] += n
			}
		}
	}
	return recorded, omitted
}

// bytes returns the size of all logs on disk.
func (l *logged) bytes() (total int64) {
	l.t.Helper()
	require.NoError(l.t, filepath.WalkDir(filepath.Dir(l.path), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) { // rotated meanwhile
			return nil
		}
		total += info.Size()
		return err
	}))
	return total
}

// work makes another tenant work, so that there are records to lose, and returns all records
// once its driver has written them.
func (l *logged) work() []string {
	l.t.Helper()
	c := l.dial("default")
	s := l.open(c)
	require.NoError(l.t, addVectors(within(l.t), s))
	require.NoError(l.t, s.Close(within(l.t)))
	var before []string
	require.Eventually(l.t, func() bool {
		before = l.others()
		return strings.Contains(before[len(before)-1], "session.close")
	}, patience, 10*time.Millisecond)
	return before
}

// busy runs n clients of the tenant limited that repeat a call for a while.
func (l *logged) busy(n int, d time.Duration, do func(*client.Conn) error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	defer cancel()
	var clients sync.WaitGroup
	for range n {
		c := l.dial("limited")
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := do(c); err != nil {
					l.t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

const washing = 2 * time.Second

// A tenant at its limit of sessions that asks for more, as fast as it can, pushes no records
// of others out of the log, and its own acts are counted exactly.
func TestRefusedAttachesWashNothingAway(t *testing.T) {
	l := startLogged(t, audit.Options{MaxBytes: audit.MinMaxBytes, Keep: 1}, 64<<20)
	before := l.work()
	held := l.dial("limited")
	l.open(held)
	l.open(held)
	var refused atomic.Uint64
	l.busy(2, washing, func(c *client.Conn) error {
		_, err := c.Open(within(t), 0)
		if !errors.Is(err, gpuerr.Quota) {
			return errors.Join(err, errors.New("a session too many is not refused"))
		}
		refused.Add(1)
		return nil
	})
	l.stop()

	require.Subset(t, l.others(), before)
	recorded, omitted := l.ofLimited()
	t.Logf("%d refused: %v, %v left out", refused.Load(), recorded, omitted)
	require.Greater(t, refused.Load(), uint64(300))
	require.Equal(t, refused.Load(), recorded["session.refused"]+omitted["session.refused"])
	require.Less(t, recorded["session.refused"], uint64(40))
	require.EqualValues(t, 2, recorded["session.attach"]+omitted["session.attach"], "an attach that is refused is one record")
	require.Less(t, l.bytes(), int64(6*3*audit.MinMaxBytes), "three files of each of six logs")
}

// A tenant that opens and closes sessions all the time pushes no records of others out of the
// log either. When its share is spent its sessions are counted, and every open session is
// recorded or counted.
func TestSessionsWashNothingAway(t *testing.T) {
	const share = 16 << 10
	l := startLogged(t, audit.Options{MaxBytes: 3 * share, Keep: 1}, share)
	before := l.work()
	var opened atomic.Uint64
	l.busy(2, washing, func(c *client.Conn) error {
		s, err := c.Open(within(t), 0)
		if err != nil {
			return err
		}
		opened.Add(1)
		if _, err := s.CreateBuffer(within(t), 4096, client.Storage); err != nil {
			return err
		}
		return s.Close(within(t))
	})
	l.stop()

	require.Subset(t, l.others(), before)
	recorded, omitted := l.ofLimited()
	t.Logf("%d opened: %v, %v left out", opened.Load(), recorded, omitted)
	require.NotZero(t, omitted["session.attach"])
	require.Equal(t, opened.Load(), recorded["session.attach"]+omitted["session.attach"])
	require.Equal(t, opened.Load(), recorded["session.open"]+omitted["session.open"])
	require.Equal(t, opened.Load(), recorded["session.close"]+omitted["session.close"])
}
