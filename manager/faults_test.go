package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/iommu/faultlog"
)

func strayWrite(iova iommu.IOVA) faultlog.Fault {
	return faultlog.Fault{Address: "0000:01:00.0", IOVA: iova, Write: true, Reason: "PTE Write access is not set"}
}

// Faults are sent one message at a time, later ones are counted, and settle waits until the
// driver knows all.
func TestFaultDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		desk := newFaultDesk(newEpochFailure())
		require.NoError(t, desk.settle(ctx), "nothing has happened")
		told, answer := make(chan control.DeviceFaultRequest), make(chan error)
		go desk.run(ctx, func(_ context.Context, req control.DeviceFaultRequest) error {
			told <- req
			return <-answer
		})
		desk.take(strayWrite(0x1000), time.Now())
		require.Equal(t, control.DeviceFaultRequest{IOVA: 0x1000, Access: control.FaultWrite, Count: 1, Reason: "PTE Write access is not set"}, <-told)
		for range 3 {
			desk.take(faultlog.Fault{IOVA: 0x2000, Reason: "PTE Read access is not set"}, time.Now())
		}
		settled := make(chan error, 1)
		go func() { settled <- desk.settle(ctx) }()
		answer <- nil
		require.Equal(t, control.DeviceFaultRequest{IOVA: 0x2000, Access: control.FaultRead, Count: 3, Reason: "PTE Read access is not set"}, <-told)
		synctest.Wait()
		require.Empty(t, settled, "the driver has not answered")
		answer <- nil
		require.NoError(t, <-settled)
		require.NoError(t, desk.settle(ctx))
		require.Empty(t, desk.failure.cause)
	})
}

// A driver that does not deal with a fault is ended, and no settle succeeds.
func TestFaultIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		desk := newFaultDesk(newEpochFailure())
		desk.take(strayWrite(0x1000), time.Now())
		desk.run(ctx, func(context.Context, control.DeviceFaultRequest) error { return errors.New("no answer for 4s") })
		require.ErrorContains(t, <-desk.failure.cause, "did not deal with it: no answer for 4s")
		settled := make(chan error, 1)
		go func() { settled <- desk.settle(ctx) }()
		synctest.Wait()
		require.Empty(t, settled)
		cancel(errGrantsRevoked)
		require.ErrorIs(t, <-settled, gpuerr.Revoked)
	})
}

// The driver of a device that strays again and again is not asked to deal with it.
func TestManyFaultsEndTheEpoch(t *testing.T) {
	desk := newFaultDesk(newEpochFailure())
	now := time.Now()
	for range 5 * maxFaults { // slowly enough
		now = now.Add(faultWindow/maxFaults + time.Millisecond)
		desk.take(strayWrite(0x1000), now)
	}
	require.Empty(t, desk.failure.cause)
	now = now.Add(2 * faultWindow)
	for range maxFaults {
		desk.take(strayWrite(0x1000), now)
	}
	require.Empty(t, desk.failure.cause)
	desk.take(strayWrite(0x1000), now.Add(faultWindow))
	require.ErrorContains(t, <-desk.failure.cause, "more than 4 IOMMU faults of the device in 10s")
}

func TestStormWatch(t *testing.T) {
	now := time.Now()
	w := newStormWatch(1000, []uint64{5, 5}, now)
	_, _, storm := w.sample([]uint64{5, 1_000_000}, now)
	require.False(t, storm, "no time has passed")
	now = now.Add(2 * time.Second)
	_, _, storm = w.sample([]uint64{5, 2005}, now)
	require.False(t, storm, "1000 a second")
	now = now.Add(500 * time.Millisecond)
	vector, rate, storm := w.sample([]uint64{5, 2605}, now)
	require.True(t, storm)
	require.Equal(t, 1, vector)
	require.EqualValues(t, 1200, rate)
	now = now.Add(time.Second)
	_, _, storm = w.sample([]uint64{4, 2605, 1 << 40}, now)
	require.False(t, storm, "counted anew, or not counted before")
}
