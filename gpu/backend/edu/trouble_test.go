package edu_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Work that ends without its interrupt is found by looking.
func TestLostInterrupts(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		r.m.SetTrouble(edutest.Trouble{LoseInterrupts: true})
		src, dst := r.span(text(4096)), r.span(zeros(4096))
		c := r.run(copyJob(dst, src))
		require.Equal(t, outcome.Success, c.Outcome)
		require.Equal(t, text(4096), dst.Host)
		require.LessOrEqual(t, c.DeviceTime, 4*(transfer+60*time.Millisecond))
		require.EqualValues(t, 4, r.d.Counters().LostInterrupts)

		operands, results := r.span(words(5, 6)), r.span(words(0, 0))
		c = r.run(r.factorial(operands, results, 2))
		require.Equal(t, outcome.Success, c.Outcome)
		require.Equal(t, words(120, 720), results.Host)
		require.EqualValues(t, 6, r.d.Counters().LostInterrupts)
	})
}

// An interrupt without a reason is harmless, at any time.
func TestSpuriousInterrupts(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		v := r.m.Function().Vector(0)
		v.Raise()
		synctest.Wait()
		src, dst := r.span(text(4096)), r.span(zeros(4096))
		job := r.submit(copyJob(dst, src))
		for range 39 {
			time.Sleep(10 * time.Millisecond)
			v.Raise()
		}
		c := r.await(job)
		require.Equal(t, outcome.Success, c.Outcome)
		require.Equal(t, 4*transfer, c.DeviceTime, "nothing was thought to have ended before it had")
		require.Equal(t, text(4096), dst.Host)
		require.Positive(t, r.d.Counters().SpuriousInterrupts)
		require.Zero(t, r.d.Counters().LostInterrupts)
	})
}

// A storm costs the interrupts for a while, and no work.
func TestStorm(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		dst := r.span(zeros(4096))
		job := r.submit(fillJob(dst, 7))
		time.Sleep(transfer / 2)
		r.m.Function().Vector(0).RaiseMany(ddf.StormLimit + 1)
		require.Equal(t, outcome.Success, r.await(job).Outcome)
		require.Equal(t, uint64(1), r.d.Counters().Storms)
		require.EqualValues(t, 3, r.d.Counters().LostInterrupts)
		time.Sleep(2 * time.Second) // the vector is unmasked
		require.Equal(t, outcome.Success, r.run(fillJob(dst, 8)).Outcome)
		require.Equal(t, uint64(1), r.d.Counters().Storms)
		require.EqualValues(t, 3, r.d.Counters().LostInterrupts, "interrupts work again")
	})
}

// A cancelled job ends after the transfer that runs; what it has not begun is not begun.
func TestCancel(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		src, dst := r.span(text(1<<16)), r.span(zeros(1<<16))
		job := r.submit(copyJob(dst, src))
		behind := r.submit(fillJob(r.span(zeros(64)), 1))
		time.Sleep(transfer / 2)
		r.d.Cancel(job.ID)
		c := r.await(job)
		require.Equal(t, cancelled, c.Outcome)
		require.Equal(t, transfer, c.DeviceTime)
		require.Equal(t, zeros(1<<16), dst.Host)
		require.Equal(t, outcome.Success, r.await(behind).Outcome)

		job = r.submit(copyJob(dst, src))
		time.Sleep(transfer * 5 / 2)
		began := time.Now()
		r.d.Cancel(job.ID)
		require.Equal(t, cancelled, r.await(job).Outcome)
		require.LessOrEqual(t, time.Since(began), r.d.Info().Limits.CancelBound)
		require.Equal(t, text(2048), dst.Host[:2048])
		require.Equal(t, zeros(1<<16-2048), dst.Host[2048:])
	})
}

// The patience with one transfer holds when its interrupt is lost, too.
func TestCancelBound(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		r.m.SetTrouble(edutest.Trouble{LoseInterrupts: true})
		dst := r.span(zeros(1 << 16))
		for wait := range 20 {
			job := r.submit(fillJob(dst, 1))
			time.Sleep(time.Duration(wait) * 13 * time.Millisecond)
			began := time.Now()
			r.d.Cancel(job.ID)
			require.Equal(t, cancelled, r.await(job).Outcome)
			require.LessOrEqual(t, time.Since(began), r.d.Info().Limits.CancelBound)
		}
	})
}

// Reset waits for the transfer that runs, and says so when it cannot.
func TestReset(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		dst := r.span(zeros(1 << 16))
		r.submit(fillJob(dst, 1))
		r.submit(fillJob(dst, 2))
		time.Sleep(transfer * 3 / 2)
		require.ErrorIs(t, r.reset(transfer/4), gpuerr.Busy)
		require.True(t, r.m.Busy())
		began := time.Now()
		require.NoError(t, r.reset(time.Second))
		require.LessOrEqual(t, time.Since(began), transfer)
		require.False(t, r.m.Busy())
		ended := r.m.Transfers()
		time.Sleep(time.Second)
		require.Equal(t, ended, r.m.Transfers(), "the device works for a job of before the reset")
		completed, _ := r.heard()
		require.Empty(t, completed)
		require.Equal(t, outcome.Success, r.run(fillJob(r.span(zeros(64)), 3)).Outcome)
	})
}

// A transfer that never ends fails each Reset, its job is never completed, and its memory
// stays the device's until the end.
func TestStuck(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		r.m.SetTrouble(edutest.Trouble{Stuck: true})
		s := r.span(zeros(64))
		job := r.submit(fillJob(s, 1))
		time.Sleep(10 * time.Second)
		before := r.d.Progress()
		r.d.Cancel(job.ID)
		for range 2 {
			require.ErrorIs(t, r.reset(time.Second), gpuerr.Busy)
		}
		require.Equal(t, before, r.d.Progress())
		completed, gone := r.heard()
		require.Empty(t, completed)
		require.Empty(t, gone)
		closed := make(chan error)
		go func() { closed <- r.d.Close() }()
		time.Sleep(10 * time.Second)
		select {
		case <-closed:
			require.Fail(t, "closed with a transfer under way")
		default:
		}
		r.m.SetTrouble(edutest.Trouble{})
		require.NoError(t, <-closed)
		completed, _ = r.heard()
		require.Empty(t, completed)
	})
}

func TestGone(t *testing.T) {
	const bound = 250 * time.Millisecond
	for name, leave := range map[string]func(m *edutest.Model){
		"unplugged":         func(m *edutest.Model) { m.Unplug() },
		"another device":    func(m *edutest.Model) { m.SetTrouble(edutest.Trouble{Identity: 0xdead}) },
		"grants taken back": func(m *edutest.Model) { m.Function().Revoke() },
	} {
		for state, work := range map[string]func(r *rig){
			"idle":      func(*rig) {},
			"transfer":  func(r *rig) { r.submit(fillJob(r.span(zeros(64)), 1)) },
			"factorial": func(r *rig) { r.submit(r.factorial(r.span(words(9)), r.span(words(0)), 1)) },
		} {
			t.Run(name+"/"+state, func(t *testing.T) {
				bubble(t, edutest.Options{FactorialTime: time.Second}, func(t *testing.T, r *rig) {
					work(r)
					time.Sleep(transfer / 2)
					behind := fillJob(r.span(zeros(64)), 2)
					r.submit(behind)
					leave(r.m)
					time.Sleep(bound)
					synctest.Wait()
					completed, gone := r.heard()
					require.Len(t, gone, 1)
					require.Empty(t, completed)
					t.Log(gone[0])
					behind.ID++
					require.ErrorIs(t, r.d.Submit(behind), gpuerr.DeviceLost)
					require.ErrorIs(t, r.reset(time.Second), gpuerr.DeviceLost)
					time.Sleep(10 * time.Second)
					completed, gone = r.heard()
					require.Len(t, gone, 1, "it is said once")
					require.Empty(t, completed)
				})
			})
		}
	}
}

// A result of all ones is one, when the device is there.
func TestAllOnesIsNotGoneByItself(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		// Nothing but a broken unit gives such a factorial: its register is read so
		// before it computes.
		r.m.Write32(0x20, 0)
		v, err := r.m.Grants().Mmio[0].Read32(0x30)
		require.NoError(t, err)
		require.EqualValues(t, 0xffffffff, v)
		time.Sleep(time.Second)
		_, gone := r.heard()
		require.Empty(t, gone)
	})
}

func TestOpenRefuses(t *testing.T) {
	file := func(values ...uint32) fake.Registers {
		f := make(fake.RegisterFile, 1024)
		copy(f, values)
		return f
	}
	window := func(registers fake.Registers, bytes uint64) []fake.WindowSpec {
		return []fake.WindowSpec{{Bar: 0, Bytes: bytes, Registers: registers}}
	}
	for name, c := range map[string]struct {
		o    fake.Options
		code gpuerr.Code
		says string
	}{
		"no registers":     {fake.Options{Windows: []fake.WindowSpec{{Bar: 2, Bytes: 4096}}}, gpuerr.NoDevice, "no window of BAR 0"},
		"half a window":    {fake.Options{Windows: window(file(0x010000ed), 0x80)}, gpuerr.NoDevice, "128 bytes"},
		"no vector":        {fake.Options{Vectors: -1, Windows: window(file(0x010000ed), 4096)}, gpuerr.NoDevice, "vector"},
		"another device":   {fake.Options{Windows: window(file(0x10), 4096)}, gpuerr.NoDevice, "identifies itself as 0x10"},
		"not on the bus":   {fake.Options{Windows: window(file(0xffffffff), 4096)}, gpuerr.DeviceLost, "all ones"},
		"does not live":    {fake.Options{Windows: window(file(0x010000ed), 4096)}, gpuerr.NoDevice, "liveness"},
		"read-only window": {fake.Options{Windows: []fake.WindowSpec{{Bar: 0, Bytes: 4096, ReadOnly: true, Registers: file(0x010000ed)}}}, gpuerr.Denied, "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := fake.New(c.o)
			require.NoError(t, err)
			_, err = edu.New(f.Grants())
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, c.says)
			require.NoError(t, f.Close())
		})
	}
	t.Run("memory beyond its reach", func(t *testing.T) {
		m, err := edutest.New(edutest.Options{DMABits: 48})
		require.NoError(t, err)
		_, err = edu.New(m.Grants())
		require.ErrorIs(t, err, gpuerr.NoDevice)
		require.ErrorContains(t, err, "set dmaBits of the function to 28")
		require.NoError(t, m.Close())
	})
}

// Open waits for a transfer that the driver before has left running.
func TestOpenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := edutest.New(edutest.Options{})
		require.NoError(t, err)
		regs := m.Grants().Mmio[0]
		for off, v := range map[uint64]uint32{0x80: 0x40000, 0x88: 1 << 20, 0x90: 8} {
			require.NoError(t, regs.Write32(off, v))
		}
		require.NoError(t, regs.Write32(0x98, 3))
		began := time.Now()
		d, err := edu.New(m.Grants())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), transfer)
		require.NoError(t, d.Close())

		m.SetTrouble(edutest.Trouble{Stuck: true})
		require.NoError(t, regs.Write32(0x98, 3))
		_, err = edu.New(m.Grants())
		require.ErrorIs(t, err, gpuerr.Busy)
		require.ErrorContains(t, err, "a transfer under way")
		require.NoError(t, m.Close())
	})
}
