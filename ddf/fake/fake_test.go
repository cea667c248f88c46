package fake_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/ddftest"
	"capgpu/ddf/fake"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func open(t *testing.T, o fake.Options) *fake.Function {
	t.Helper()
	f, err := fake.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestConformance(t *testing.T) {
	for name, level := range map[string]bool{"edge": false, "level": true} {
		t.Run(name, func(t *testing.T) {
			ddftest.RunHarness(t, func(t *testing.T) ddftest.Harness {
				f := open(t, fake.Options{
					Pinned:         !level, // there is no reason, but both are wanted
					LimitBytes:     1 << 20,
					Vectors:        2,
					LevelTriggered: level,
					Windows: []fake.WindowSpec{
						{Bar: 0, Bytes: 4096, Doorbells: []uint64{0x100, 0x104}},
						{Bar: 2, Bytes: 256, ReadOnly: true, Doorbells: []uint64{0x40}},
					},
				})
				return ddftest.Harness{
					Grants: f.Grants(),
					Raise: func(vector int) {
						f.Vector(vector).Raise()
						f.Vector(vector).Lower()
					},
					RaiseMany: func(vector int, n uint64) {
						f.Vector(vector).RaiseMany(n)
						f.Vector(vector).Lower()
					},
					Peek: func(bar int, off uint64) uint32 {
						v, err := f.Window(bar).Peek(off)
						require.NoError(t, err)
						return v
					},
					DeviceReads: func(t *testing.T, iova ddf.IOVA, bytes uint64) (seen []byte) {
						require.True(t, f.Pool().DMA(iova, bytes, func(memory []byte) { seen = slices.Clone(memory) }))
						return seen
					},
					Pinned:    !level,
					Poke:      func(bar int, off uint64, v uint32) { require.NoError(t, f.Window(bar).Poke(off, v)) },
					Gone:      func() { f.SetGone(true) },
					Revoke:    f.Revoke,
					Mapped:    f.Pool().Mapped,
					Doorbells: map[int][]uint64{0: {0x100, 0x104}, 2: {0x40}},
					ReadOnly:  []int{2},
				}
			})
		})
	}
}

func TestConformanceOfGrantsAlone(t *testing.T) {
	ddftest.Run(t, func(t *testing.T) ddf.GrantSet { return open(t, fake.Options{LimitBytes: 1 << 20}).Grants() })
}

func TestCloseTellsWhatWasLeft(t *testing.T) {
	f, err := fake.New(fake.Options{})
	require.NoError(t, err)
	b, err := f.Grants().DMA.Alloc(t.Context(), 1)
	require.NoError(t, err)
	require.ErrorContains(t, f.Close(), "1 DMA buffers")
	require.NoError(t, f.Close())
	require.Negative(t, b.FD())
	require.Zero(t, f.Grants().DMA.Usage().UsedBytes)
}

func TestLevelFiresAgainUntilLowered(t *testing.T) {
	f := open(t, fake.Options{LevelTriggered: true})
	v := f.Grants().Interrupts[0]
	f.Vector(0).Raise()
	for range 3 { // the line stays up: every Ack is answered with another interrupt
		n, err := v.Wait(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, v.Ack())
	}
	n, err := v.Wait(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	f.Vector(0).Lower()
	require.NoError(t, v.Ack())
	f.Revoke()
	_, err = v.Wait(t.Context())
	require.ErrorIs(t, err, gpuerr.Revoked, "a lowered line must not fire again")
}

// counter is a device that counts the reads of register 0 in it, and adds up the writes to
// register 4 there.
type counter struct{ reads, sum uint32 }

func (c *counter) Read32(off uint64) uint32 {
	if off == 4 {
		return c.sum
	}
	c.reads++
	return c.reads
}

func (c *counter) Write32(_ uint64, v uint32) { c.sum += v }

func TestRegistersMayBehave(t *testing.T) {
	c := &counter{}
	f := open(t, fake.Options{Windows: []fake.WindowSpec{{Bar: 1, Bytes: 8, Doorbells: []uint64{4}, ReadOnly: true, Registers: c}}})
	w := f.Grants().Mmio[1]
	require.NoError(t, w.Ring(4, 40))
	require.NoError(t, w.Ring(4, 2))
	sum, err := w.Read32(4)
	require.NoError(t, err)
	require.Equal(t, uint32(42), sum)
	f.SetGone(true)
	require.NoError(t, w.Ring(4, 1))
	f.SetGone(false)
	sum, err = w.Read32(4)
	require.NoError(t, err)
	require.Equal(t, uint32(42), sum, "a ring while the device was gone must be lost")
}

func TestHooks(t *testing.T) {
	refuse := errors.New("domain lost")
	broken := true
	f := open(t, fake.Options{Hooks: fake.Hooks{
		Alloc: func(bytes uint64) error {
			if bytes > 4096 {
				return gpuerr.New(gpuerr.IO, "no memory")
			}
			return nil
		},
		Free: func(ddf.IOVA, uint64) error {
			if broken {
				return refuse
			}
			return nil
		},
	}})
	dma := f.Grants().DMA
	_, err := dma.Alloc(t.Context(), 8192)
	require.ErrorIs(t, err, gpuerr.IO)
	require.Zero(t, dma.Usage().UsedBytes, "a failed allocation returns its charge")
	b, err := dma.Alloc(t.Context(), 4096)
	require.NoError(t, err)
	require.ErrorIs(t, b.Free(), refuse)
	require.EqualValues(t, 4096, dma.Usage().UsedBytes, "what could not be unmapped stays charged")
	require.NotEmpty(t, b.Bytes(), "and stays mapped")
	broken = false
	require.NoError(t, b.Free())
	require.Zero(t, dma.Usage().UsedBytes)
}

func TestBadOptions(t *testing.T) {
	for name, specs := range map[string][]fake.WindowSpec{
		"no size":        {{Bar: 0}},
		"odd size":       {{Bar: 0, Bytes: 6}},
		"huge":           {{Bar: 0, Bytes: 1 << 40}},
		"twice":          {{Bar: 0, Bytes: 4}, {Bar: 0, Bytes: 4}},
		"doorbell off":   {{Bar: 0, Bytes: 8, Doorbells: []uint64{8}}},
		"doorbell split": {{Bar: 0, Bytes: 8, Doorbells: []uint64{2}}},
	} {
		_, err := fake.New(fake.Options{Windows: specs})
		require.ErrorIs(t, err, gpuerr.Invalid, name)
	}
}

func TestAuditQuota(t *testing.T) {
	log := open(t, fake.Options{AuditLimitBytes: 100}).Grants().Audit
	require.NoError(t, log.Append("a", "b"))
	var refusal *gpuerr.Error
	for refusal == nil {
		if err := log.Append("a", "b"); err != nil {
			require.ErrorAs(t, err, &refusal)
		}
	}
	require.Equal(t, "auditBytes", refusal.Resource)
	head, err := log.Verify()
	require.NoError(t, err)
	require.NotZero(t, head.Size)
}

func TestSleepingWaiterWakes(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(f *fake.Function)
		want error
	}{
		"raise": {func(f *fake.Function) {
			require.NoError(t, f.Grants().Interrupts[0].Unmask())
			synctest.Wait()
			f.Vector(0).Raise()
		}, nil},
		"unmask": {func(f *fake.Function) {
			f.Vector(0).Raise()
			synctest.Wait()
			require.NoError(t, f.Grants().Interrupts[0].Unmask())
		}, nil},
		"revoke": {(*fake.Function).Revoke, gpuerr.Revoked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := fake.New(fake.Options{})
				require.NoError(t, err)
				v := f.Grants().Interrupts[0]
				require.NoError(t, v.Mask())
				ended := make(chan error, 1)
				go func() {
					_, err := v.Wait(t.Context())
					ended <- err
				}()
				synctest.Wait() // it sleeps
				c.act(f)
				require.ErrorIs(t, <-ended, c.want)
				require.NoError(t, f.Close())
			})
		})
	}
}
