package gpu

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/program/library"
)

// imageRig is a frozen device with some of everything, and what it tells.
type imageRig struct {
	*rig
	pool *movablePool
	text []byte // its Snapshot
	fds  []int
	host [][]byte // what its clients see of its buffers
}

func newImageRig(f *testing.F) *imageRig {
	r, pool := newMovableRig(f, withScript(mock.Fault{Kind: mock.FaultErrorCompletion, Job: 1}))
	x := &imageRig{rig: r, pool: pool}
	alice, bob := r.open("alice", func(a *Attach) { a.Limits[ledger.Buffers] = 20; a.ID = 7 }), r.open("bob")
	weak, err := alice.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits(), MaxDeadline: time.Second, Programs: []string{"vecadd_f32"}})
	require.NoError(f, err)
	a, b, own, gone := buf(f, alice, 4096), buf(f, alice, 8192), buf(f, alice, 5<<20), buf(f, alice, 4096)
	require.NoError(f, alice.DestroyBuffer(gone))
	buf(f, weak, 4096)
	for _, h := range []Handle{a, b, own} {
		x.host = append(x.host, host(f, alice, h))
	}
	open := newFence(f, alice, 5)
	bundle, there := library.Bundle("fill_u32")
	require.True(f, there)
	in := buf(f, alice, uint64(len(bundle)))
	copy(host(f, alice, in), bundle)
	_, info, err := alice.LoadProgram(f.Context(), in, 0, uint64(len(bundle)))
	require.NoError(f, err)
	_, _, err = weak.OpenProgram("vecadd_f32")
	require.NoError(f, err)
	_, _, err = alice.OpenProgram("sha256:" + hexOf(info.Digest[:]))
	require.NoError(f, err)
	var rec, doomed recorder
	rec.fill(a, 1024, 64, 0x42424242)
	rec.record(f, alice)
	doomed.fill(in, 0, 64, 1)
	doomed.record(f, alice)
	require.NoError(f, alice.DestroyBuffer(in))
	bad, held := r.queue(alice, 16, 4096), r.queue(alice, 16, 4096)
	held.wait(open, 7)
	held.fill(a, 0, 64, 2)
	held.signal(open, 9)
	require.Eventually(f, func() bool { return alice.Budget()[ledger.InFlight].Used+alice.Budget()[ledger.InFlight].Reserved == 1 }, 5*time.Second, time.Millisecond)
	bad.fill(b, 0, 64, 1) // spoils it
	bad.signal(open, 6)
	bad.take(2)
	r.queue(bob, 16, 0)
	r.dev.strike(weak, "deadline missed", "")
	r.dev.strike(bob, "deadline missed", "")
	until := time.Now().Add(time.Hour)
	bob.tenant.bannedUntil.Store(&until)
	img, fds := told(f, r)
	x.fds = fds
	x.text, err = json.Marshal(img)
	require.NoError(f, err)
	f.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		r.dev.Thaw()
	})
	return x
}

// sum is of all that a client sees: buffers and rings.
func (x *imageRig) sum(t *testing.T) uint32 {
	h := crc32.NewIEEE()
	for _, b := range x.host {
		h.Write(b[:4096])
	}
	for i := 0; i < len(x.fds); i += 3 {
		var b [4096]byte
		_, err := unix.Pread(x.fds[i], b[:], 0)
		require.NoError(t, err)
		h.Write(b[:])
	}
	return h.Sum32()
}

// dups are descriptors of the same things; of the rings' memory copies, which a device
// that goes on can write to.
func (x *imageRig) dups(t *testing.T) (fds []int) {
	for i, fd := range x.fds {
		d, err := -1, error(nil)
		if i%3 == 0 {
			d, err = copyMemory(fd)
		} else {
			d, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
		require.NoError(t, err)
		fds = append(fds, d)
	}
	return fds
}

func copyMemory(of int) (fd int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(of, &st); err != nil {
		return -1, err
	}
	b := make([]byte, st.Size)
	_, readErr := unix.Pread(of, b, 0)
	fd, err = unix.MemfdCreate("copy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	_, writeErr := unix.Write(fd, b)
	_, sealErr := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return fd, errors.Join(readErr, writeErr, sealErr)
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s []byte
	for _, c := range b {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}

// mutator changes a true image as its bytes say: each step names one thing of it, by its
// place in the order of its fields, and what becomes of that.
type mutator struct{ data []byte }

func (m *mutator) take(n int) uint64 {
	var b [8]byte
	copied := copy(b[:n], m.data)
	m.data = m.data[copied:]
	return binary.LittleEndian.Uint64(b[:])
}

// change takes one step, and reports whether there was one.
func (m *mutator) change(img *Snapshot) bool {
	if len(m.data) < 3 {
		return false
	}
	var all []reflect.Value
	leaves(reflect.ValueOf(img).Elem(), &all)
	at := all[int(m.take(2))%len(all)]
	kind := m.take(1)
	switch at.Kind() {
	case reflect.Slice:
		m.slice(at, kind)
	case reflect.Pointer:
		if at.IsNil() {
			at.Set(reflect.New(at.Type().Elem()))
		} else {
			at.SetZero()
		}
	case reflect.Bool:
		at.SetBool(!at.Bool())
	case reflect.String:
		at.SetString([]string{"", "alice", "bob", "vecadd_f32", "fill_u32", "mallory", string(make([]byte, 300))}[kind%7])
	case reflect.Struct: // a moment
		at.Set(reflect.ValueOf(time.Now().Add(time.Duration(m.take(8)))))
	default:
		m.number(at, kind, all)
	}
	return true
}

// leaves are the places of a value that a step can change.
func leaves(v reflect.Value, all *[]reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			*all = append(*all, v)
			return
		}
		for i := range v.NumField() {
			leaves(v.Field(i), all)
		}
	case reflect.Pointer:
		*all = append(*all, v)
		if !v.IsNil() {
			leaves(v.Elem(), all)
		}
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice {
			*all = append(*all, v)
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range min(v.Len(), 64) {
			leaves(v.Index(i), all)
		}
	default:
		*all = append(*all, v)
	}
}

func (m *mutator) slice(v reflect.Value, kind uint64) {
	n := v.Len()
	pick := func() int { return int(m.take(1)) % max(n, 1) }
	switch {
	case kind%6 == 0:
		v.SetZero()
	case kind%6 == 1 && n > 0: // one is gone
		i := pick()
		v.Set(reflect.AppendSlice(v.Slice3(0, i, i), v.Slice(i+1, n)))
	case kind%6 == 2 && n > 0 && n < 64: // one is there twice
		v.Set(reflect.Append(v, v.Index(pick())))
	case kind%6 == 3 && n > 1: // two change places
		reflect.Swapper(v.Interface())(pick(), pick())
	case kind%6 == 4 && n < 64:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case n > 0 && v.Type().Elem().Kind() == reflect.Uint8:
		b := slices.Clone(v.Bytes())
		b[int(m.take(2))%n] ^= byte(m.take(1))
		v.SetBytes(b)
	case n > 0:
		v.SetLen(pick())
	}
}

func (m *mutator) number(v reflect.Value, kind uint64, all []reflect.Value) {
	get := func(v reflect.Value) uint64 {
		switch {
		case v.CanInt():
			return uint64(v.Int())
		case v.CanUint():
			return v.Uint()
		}
		return 0
	}
	now := get(v)
	switch kind % 9 {
	case 0:
		now = 0
	case 1:
		now++
	case 2:
		now--
	case 3:
		now = ^uint64(0)
	case 4:
		now ^= 1 << (m.take(1) % 64)
	case 5: // another number of the image: a handle, a position, an address
		now = get(all[int(m.take(2))%len(all)])
	case 6:
		now = m.take(8)
	case 7:
		now = 1 << (m.take(1) % 64)
	case 8:
		now += 4096
	}
	if v.CanInt() {
		v.SetInt(int64(now))
	} else {
		v.SetUint(now)
	}
}

// Whatever a driver tells its successor: it is taken or refused with a code, nothing that
// a client sees has changed until the successor goes on, and what was taken can go on and
// end with its books at zero. Input is either an image, as JSON, or steps that change a
// true one.
func FuzzRestore(f *testing.F) {
	x := newImageRig(f)
	f.Add([]byte{})
	f.Add([]byte(`{"Version":2,"Device":"mock0","Backend":"mock","LastSession":3,"Tenants":[{"Name":"alice","Weight":1}],"Sessions":[{"ID":1,"Tenant":"alice","FirstGeneration":1}]}`))
	for i := range byte(200) {
		f.Add([]byte{i, 0, i % 9, i, 0, i, 1, i / 9})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var img Snapshot
		text := x.text
		if len(data) > 0 && data[0] == '{' {
			text = data
		}
		if json.Unmarshal(text, &img) != nil {
			return
		}
		fds := x.dups(t)
		if len(data) == 0 || data[0] != '{' {
			for m, n := (mutator{data}), 0; n < 16 && m.change(&img); n++ {
			}
		}
		before := x.sum(t)
		d, _ := successor(t, x.rig, x.pool)
		err := d.Restore(t.Context(), &img, fds, x.pool.show)
		require.Equal(t, before, x.sum(t), "what clients see has changed")
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		if err != nil {
			code := gpuerr.CodeOf(err)
			require.True(t, code.Valid() && code != gpuerr.Internal, "%v", err)
			_ = d.Close(ctx)
			return
		}
		require.NoError(t, d.Check())
		require.Len(t, d.sessionList(), len(img.Sessions))
		if len(data) == 0 {
			again, _, err := d.Snapshot()
			require.NoError(t, err)
			require.Equal(t, timeless(&img), timeless(again))
		}
		d.Thaw()
		for _, s := range d.sessionList() {
			handles.Each(s.handles, func(f *fence) { _ = s.SignalFence(f.h, f.next()) })
		}
		require.NoError(t, d.Close(ctx))
		require.NoError(t, d.ledger.Root().Zero())
		require.NoError(t, d.Check())
	})
}

// timeless leaves out of an image what time alone changes.
func timeless(img *Snapshot) *Snapshot {
	c := *img
	c.Uptime = 0
	c.Sessions = slices.Clone(c.Sessions)
	for i := range c.Sessions {
		c.Sessions[i].Age = 0
	}
	c.Tenants = slices.Clone(c.Tenants)
	for i := range c.Tenants {
		c.Tenants[i].BannedUntil, c.Tenants[i].Strikes.Recent = nil, nil
	}
	c.Branches = slices.Clone(c.Branches)
	for i := range c.Branches {
		c.Branches[i].Strikes.Recent = nil
	}
	return &c
}

// next is a value that nobody has promised of it.
func (f *fence) next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.promised + 1
}
