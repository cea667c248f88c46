package manager

import (
	"context"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/iommu"
	"capgpu/schema"
)

// Vectors beyond one answer are requested one by one; each call returns the vector of its
// number.
func TestMoreVectorsThanOneAnswerHas(t *testing.T) {
	fake, err := newFakeFunction(fakeWindows, vectorsAtOnce+3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	g := grantOf(t, grantTestLimits(), fake, iommu.NewSpace(fake.Domain().Ranges()))
	vectors := dialGrants(t, g).GrantSet().Interrupts
	require.Len(t, vectors, vectorsAtOnce+3)
	for _, i := range []int{0, 1, vectorsAtOnce - 1, vectorsAtOnce, vectorsAtOnce + 2} {
		v, err := fake.vector(i)
		require.NoError(t, err)
		require.NoError(t, v.raise())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		n, err := vectors[i].Wait(ctx)
		cancel()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "vector %d", i)
	}
}

// All is answered once, however often it is called, beside any single calls: each answer has
// as many descriptors as there are windows and vectors, and those that a driver does not read
// stay open in the manager. It grants no window twice either.
func TestAllIsAnsweredOnce(t *testing.T) {
	for name, mapped := range map[string]bool{"first": false, "after a window": true} {
		t.Run(name, func(t *testing.T) {
			g := grant(t, grantTestLimits())
			transport := rpcguard.NewClientTransport(g.theirs)
			conn := rpc.NewConn(transport, nil)
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			grants := schema.DriverGrants(conn.Bootstrap(ctx))
			defer grants.Release()
			mapWindow := func() error {
				f, release := grants.Mmio(ctx, nil)
				defer release()
				pipelined := f.Mmio()
				fm, releaseMap := pipelined.Map(ctx, nil)
				defer releaseMap()
				_, err := fm.Struct()
				return rpcguard.FromException(err)
			}
			if mapped {
				require.NoError(t, mapWindow())
			}
			var asked []schema.DriverGrants_all_Results_Future
			for range 3 {
				f, release := grants.All(ctx, nil)
				defer release()
				asked = append(asked, f)
			}
			res, err := asked[0].Struct()
			require.NoError(t, err)
			for _, f := range asked[1:] {
				_, err := f.Struct()
				require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Denied)
			}
			windows, err := res.Windows()
			require.NoError(t, err)
			require.Equal(t, 1, windows.Len())
			require.Equal(t, !mapped, windows.At(0).HasMemory(), "a window is mapped once")
			require.ErrorIs(t, mapWindow(), gpuerr.Denied)
			read, releaseRead := windows.At(0).Mmio().Read32(ctx, nil)
			defer releaseRead()
			_, err = read.Struct()
			require.NoError(t, err, "calls go on")
			vectors, err := res.Vectors()
			require.NoError(t, err)
			require.Equal(t, fakeVectors, vectors.Len())
			fd, ok := transport.TakeFD(capnp.Client(vectors.At(1).Memory()))
			require.True(t, ok)
			require.NoError(t, unix.Close(fd))
		})
	}
}
