package gpu

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/records"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

func TestFaultsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) {
			c.Strikes.Limit, c.DefaultDeadline = 1, time.Millisecond
		})
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launch(p, whole(b))
		q.one()
		hand.sink.DeviceGone("all ones")
		require.NoError(t, r.dev.Close(context.Background()))
		records, err := r.fn.Grants().Audit.Snapshot(0, 100)
		require.NoError(t, err)
		told := map[string]string{}
		for _, rec := range records {
			told[rec.Kind] = rec.Detail
		}
		require.Contains(t, told["fault"], "deadline missed")
		require.Contains(t, told["ban"], `tenant=alice session=1`)
		require.Contains(t, told["reset"], "timedOut: hang")
		require.Contains(t, told["device.lost"], "all ones")
		require.Contains(t, told["session.close"], "timedOut=1")
		require.Contains(t, told["session.close"], `cause="E_DEVICE_LOST: `)
		r.close()
	})
}

func TestAudit(t *testing.T) {
	r := newMemRig(t)
	require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: limited(ledger.Buffers, 7)}))
	s := r.open("alice", func(a *Attach) { a.ID = 41 })
	b := buf(t, s, 1)
	p := prog(t, s, "copy")
	q := r.queue(s, 16, 64)
	require.NoError(t, s.CloseQueue(q.h))
	require.NoError(t, s.CloseProgram(p))
	require.NoError(t, s.DestroyBuffer(b))
	child, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, child.Close())
	require.NoError(t, s.Close())
	r.reclaimed()
	r.open("alice") // ends with the device
	require.NoError(t, r.dev.Close(context.Background()))
	records, err := r.fn.Grants().Audit.Snapshot(0, 100)
	require.NoError(t, err)
	var told []string
	for _, rec := range records {
		told = append(told, rec.Kind+" "+rec.Detail)
	}
	const counts = "launches=0 ok=0 failed=0 innocent=0 cancelled=0 revoked=0 timedOut=0 deviceLost=0"
	closed := fmt.Sprintf("%q", "E_CLOSED: the session was closed; open another")
	hx := func(record string, h Handle) string { return fmt.Sprintf("%s%#x", record, uint64(h)) }
	digest := strings.Fields(told[3])[5]
	require.Equal(t, []string{
		"tenant.limits tenant=alice buffers=7",
		"session.open tenant=alice session=1 attach=41 parent=0 facet=full",
		hx("buffer.create tenant=alice session=1 buffer=", b) + " bytes=4096 usage=1",
		hx("program.open tenant=alice session=1 program=", p) + ` name="copy" ` + digest + " bytes=0",
		hx("queue.create tenant=alice session=1 queue=", q.h) + " entries=16 argBytes=64",
		hx("queue.close tenant=alice session=1 queue=", q.h),
		hx("program.close tenant=alice session=1 program=", p),
		hx("buffer.destroy tenant=alice session=1 buffer=", b) + " bytes=4096",
		"session.open tenant=alice session=2 attach=0 parent=1 facet=memory",
		"session.close tenant=alice session=2 attach=0 parent=1 " + counts + " cause=" + closed,
		"session.close tenant=alice session=1 attach=41 parent=0 " + counts + " cause=" + closed,
		"session.open tenant=alice session=3 attach=0 parent=0 facet=full",
		"session.close tenant=alice session=3 attach=0 parent=0 " + counts + ` cause="E_REVOKED: the device is being closed"`,
	}, told)
}

func TestAuditBytesRunOut(t *testing.T) {
	r := newRig(t)
	s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.AuditBytes, 400) })
	var err error
	for range 20 {
		if _, err = s.CreateBuffer(context.Background(), 1, 0); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "auditBytes", gpuerr.From(err).Resource)
	require.NoError(t, r.dev.Check())
}

// Each step of recovery is on record when it is over: the tenant, the step, its reason and
// how long it took. A tenant that causes thousands has a few of them, with how many there
// were; another tenant's are not lost for it.
func TestStepsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		flood, other := r.open("mallory"), r.open("alice")
		records := func() (all []string) {
			synctest.Wait()
			for from := uint64(0); ; {
				read, err := r.fn.Grants().Audit.Snapshot(from, 100)
				require.NoError(t, err)
				if len(read) == 0 {
					return all
				}
				from += uint64(len(read))
				for _, rec := range read {
					if rec.Kind == "recovery" {
						all = append(all, rec.Detail)
					}
				}
			}
		}
		step := func(s *Session) {
			b, p := buf(t, s, 4096), prog(t, s, "p")
			q := r.queue(s, 16, 4096)
			q.launchFor(time.Millisecond, p, whole(b))
			require.Equal(t, hangOutcome, q.one().Outcome)
			synctest.Wait()
			require.NoError(t, s.CloseQueue(q.h))
			require.NoError(t, s.DestroyBuffer(b))
		}
		const steps = 200
		for range steps {
			step(flood)
		}
		all := records()
		require.Len(t, all, stepBurst)
		require.Regexp(t, `^tenant=mallory session=1 step=cancelling cause="deadline missed" took=\S+ more=0$`, all[0])
		step(other)
		all = records()
		require.Len(t, all, stepBurst+1)
		require.Contains(t, all[stepBurst], "tenant=alice session=2 step=cancelling")
		time.Sleep(stepInterval)
		step(flood)
		all = records()
		require.Len(t, all, stepBurst+2)
		require.Contains(t, all[stepBurst+1], fmt.Sprintf("more=%d", steps-stepBurst))
		st := r.dev.Status("alice").Recovery
		require.EqualValues(t, steps+2, st.Steps["cancelling"])
		require.Contains(t, st.StepNanos, "cancelling")
		r.close()
	})
}

// The records of control calls wait for each other for a moment, and for no longer; what
// happens to a tenant takes along what waits.
func TestRecordsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t)
		kinds := func() (all []string) {
			synctest.Wait()
			read, err := r.fn.Grants().Audit.Snapshot(0, 100)
			require.NoError(t, err)
			for _, rec := range read {
				all = append(all, rec.Kind)
			}
			return all
		}
		time.Sleep(2 * records.GatherTime)
		before := len(kinds())
		s := r.open("alice")
		buf(t, s, 4096)
		require.Len(t, kinds(), before)
		time.Sleep(records.GatherTime)
		require.Equal(t, []string{"session.open", "buffer.create"}, kinds()[before:])
		buf(t, s, 4096)
		require.Len(t, kinds(), before+2)
		require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: limited(ledger.Buffers, 7)}))
		require.Equal(t, []string{"buffer.create", "tenant.limits"}, kinds()[before+2:])

		// Nothing stands still for them.
		buf(t, s, 4096)
		began := time.Now()
		require.NoError(t, r.dev.Freeze(t.Context()))
		require.Less(t, time.Since(began), records.GatherTime)
		require.Len(t, kinds(), before+5)
		r.dev.Thaw()
		r.close()
	})
}
