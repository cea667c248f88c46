package manager

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/gpuerr"
)

// Records that one tenant causes do not keep those of others out of the log, and missing ones
// are counted.
func TestTenantCannotBlindTheLog(t *testing.T) {
	g := grant(t, grantTestLimits())
	log := dialGrants(t, g).GrantSet().Audit
	flood := "tenant=alice " + strings.Repeat("x", 900)
	var err error
	n := 0
	for ; err == nil; n++ {
		err = log.Append("queue.create", flood)
	}
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "auditBytes", gpuerr.From(err).Resource)
	require.Greater(t, n, 1000)
	require.NoError(t, log.Append("queue.create", "tenant=bob session=1"))
	require.NoError(t, log.Append("device.reset", "of the driver itself"))
	g.stop(t)
	g.logs.shares.close()
	var told []string
	for i, kind := range g.log.kinds() {
		if strings.HasPrefix(kind, "audit.") {
			told = append(told, g.log.text(i))
		}
	}
	require.Equal(t, []string{"audit.omitting alice mock0", `audit.omitted alice mock0 records=1 bytes=993 kinds="queue.create=1"`}, told)
}

// sharesWorld has shares of a source with two tenants, each of which has a log.
type sharesWorld struct {
	*auditShares
	own, alice, bob testLog
}

func newSharesWorld(bytes uint64) *sharesWorld {
	w := &sharesWorld{}
	w.auditShares = newAuditShares("mock0", bytes, &w.own, func(tenant string) AuditLog {
		return map[string]AuditLog{"alice": &w.alice, "bob": &w.bob}[tenant]
	}, slog.New(slog.DiscardHandler))
	return w
}

// say appends a driver's record of so many bytes.
func (w *sharesWorld) say(detail string, bytes uint64) error {
	detail += strings.Repeat(" ", int(bytes-audit.RecordBytes("k", "@mock0", detail)))
	_, err := w.append(w.tenantOf(detail), "@mock0", "k", detail)
	return err
}

func TestAuditShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSharesWorld(1000)
		require.NoError(t, w.say("tenant=alice", 1000))
		require.ErrorIs(t, w.say("tenant=alice", 100), gpuerr.Quota)
		require.NoError(t, w.say("tenant=bob", 1000))
		// Names of no tenant, or in another place, count for the driver.
		require.NoError(t, w.say("tenant=alicex", 400))
		require.NoError(t, w.say("x tenant=alice", 400))
		require.NoError(t, w.say("", 200))
		require.ErrorIs(t, w.say("tenant=mallory", 100), gpuerr.Quota)

		// Each record is in the log of its tenant, and so is the count of missing ones.
		require.Equal(t, []string{"k", "audit.omitting"}, w.alice.kinds())
		require.Equal(t, []string{"k"}, w.bob.kinds())
		require.Equal(t, []string{"k", "k", "k", "audit.omitting"}, w.own.kinds())
		time.Sleep(omittedEvery)
		synctest.Wait()
		require.Equal(t, `audit.omitted alice mock0 records=1 bytes=100 kinds="k=1"`, w.alice.text(2))
		require.Equal(t, `audit.omitted  mock0 records=1 bytes=100 kinds="k=1"`, w.own.text(4))
		time.Sleep(10 * omittedEvery)
		require.Len(t, w.alice.kinds(), 3, "nothing more was left out")

		time.Sleep(shareWindow / 10)
		require.NoError(t, w.say("tenant=alice", 100))
		require.Error(t, w.say("tenant=alice", 100))
		w.close()
		require.Equal(t, `audit.omitted alice mock0 records=1 bytes=100 kinds="k=1"`, w.alice.text(5))
		require.Error(t, w.say("tenant=alice", 100))
		require.Equal(t, []string{"audit.omitting", "audit.omitted"}, w.alice.kinds()[6:], "nothing waits after the end")
	})
}

// A tenant that floods its log for a day gets its share recorded. For the rest there are two
// records in each interval, which count exactly.
func TestOmittedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 100 << 10
		w := newSharesWorld(share)
		kinds := []string{"session.attach", "queue.create", "session.refused"}
		asked, written, bytes := 0, 0, uint64(0)
		began := time.Now()
		for time.Since(began) < time.Hour {
			for _, kind := range kinds {
				asked++
				_, err := w.append("alice", "@mock0", kind, "tenant=alice session=1")
				if err == nil {
					written++
					bytes += audit.RecordBytes(kind, "@mock0", "tenant=alice session=1")
				}
			}
			time.Sleep(time.Second)
		}
		w.close()
		told := 0
		for i, kind := range w.alice.kinds() {
			if kind == "audit.omitted" {
				told += omittedIn(t, w.alice.text(i))
			}
		}
		require.Equal(t, asked, written+told)
		require.Less(t, len(w.alice.kinds())-written, 2*3600/10+10)
		require.InDelta(t, share*25/24, bytes, share/500, "a full share, and an hour of another")
	})
}

// omittedIn adds up the kinds of an audit.omitted.
func omittedIn(t *testing.T, text string) (total int) {
	n, err := OmittedKinds(text)
	require.NoError(t, err)
	for _, k := range n {
		total += int(k)
	}
	return total
}

// A driver that invents kinds of records gets no more room.
func TestOmittedKindsAreBounded(t *testing.T) {
	w := newSharesWorld(10)
	for i := range 1000 {
		_, err := w.append("alice", "@mock0", "k"+strings.Repeat("x", i%60), "d")
		require.ErrorIs(t, err, gpuerr.Quota)
	}
	_, err := w.append("alice", "@mock0", "k=1 \x1b", "d")
	require.ErrorIs(t, err, gpuerr.Quota)
	w.close()
	text := w.alice.text(1)
	require.Less(t, len(text), 900)
	require.Contains(t, text, "other=")
	require.Equal(t, 1001, omittedIn(t, text))
}

// No record is omitted from a log that cannot say so. Earlier omitted ones are counted when
// the log can.
func TestNothingIsOmittedWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		w := newSharesWorld(10)
		w.alice.setRefuse(full)
		require.ErrorIs(t, w.say("tenant=alice", 100), full)
		w.alice.setRefuse(nil)
		require.ErrorIs(t, w.say("tenant=alice", 100), gpuerr.Quota)
		w.alice.setRefuse(full)
		time.Sleep(omittedEvery)
		synctest.Wait()
		require.ErrorIs(t, w.say("tenant=alice", 100), full)
		w.alice.setRefuse(nil)
		require.ErrorIs(t, w.say("tenant=alice", 100), gpuerr.Quota)
		time.Sleep(2 * omittedEvery)
		synctest.Wait()
		require.Equal(t, []string{"audit.omitting", "audit.omitting", "audit.omitted"}, w.alice.kinds())
		require.Equal(t, `audit.omitted alice mock0 records=2 bytes=200 kinds="k=2"`, w.alice.text(2))
	})
}
