package trace

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// DefaultRingBytes has room for some 75,000 events: 290 MiB of memory without two adjacent
// pages, mapped while no reader reads.
const DefaultRingBytes = 4 << 20

// maxWatched is how many processes can be watched at once.
const maxWatched = 1024

// Options of a Tracer.
type Options struct {
	// RingBytes is the room for events that were not read yet: a power of two and
	// whole pages. Zero is DefaultRingBytes.
	RingBytes int
}

// Counts cover a Tracer's whole life.
type Counts struct {
	Lost    uint64 // events for which there was no room
	Foreign uint64 // events in watched processes that vfio did not ask for
}

// Tracer records events until it is closed. Read may be called by one goroutine at a
// time, everything else by any.
type Tracer struct {
	maps   maps
	progs  []*ebpf.Program
	links  []link.Link
	events *ringbuf.Reader
	record ringbuf.Record // Read's

	closing sync.Once
	err     error // of Close
}

// Supported returns nil if Open works; otherwise the error says what is missing.
func Supported() error {
	t, err := Open(Options{RingBytes: os.Getpagesize()})
	if err != nil {
		return err
	}
	return t.Close()
}

// Open loads and attaches the programs, and watches the calling process. It is
// gpuerr.Unimplemented where the kernel or the rights do not allow that.
func Open(o Options) (*Tracer, error) {
	t, err := load(o)
	if err != nil {
		return nil, err
	}
	if err := t.attach(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// load makes everything but the links to the tracepoints.
func load(o Options) (_ *Tracer, err error) {
	if o.RingBytes == 0 {
		o.RingBytes = DefaultRingBytes
	}
	if page := os.Getpagesize(); o.RingBytes < page || bits.OnesCount(uint(o.RingBytes)) != 1 || o.RingBytes > 1<<30 {
		return nil, gpuerr.New(gpuerr.Invalid, "a ring of %d bytes: it must be a power of two from %d to 1 GiB", o.RingBytes, page)
	}

	ns, err := ownNamespace()
	if err != nil {
		return nil, err
	}

	t := &Tracer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()

	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&t.maps.events, ebpf.MapSpec{Name: "iommu_events", Type: ebpf.RingBuf, MaxEntries: uint32(o.RingBytes)}},
		{&t.maps.watched, ebpf.MapSpec{Name: "iommu_watched", Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: maxWatched}},
		{&t.maps.text, ebpf.MapSpec{Name: "iommu_text", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1}},
		{&t.maps.counters, ebpf.MapSpec{Name: "iommu_counters", Type: ebpf.Array, KeySize: 4, ValueSize: 8 * counters, MaxEntries: 1}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return nil, unsupported("make the eBPF map "+m.spec.Name, err)
		}
	}

	for _, p := range []struct {
		name string
		code asm.Instructions
	}{
		{"iommu_map", mapProgram(Map, &t.maps, ns, uint32(o.RingBytes))},
		{"iommu_unmap", mapProgram(Unmap, &t.maps, ns, uint32(o.RingBytes))},
	} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: p.name, Type: ebpf.RawTracepoint, Instructions: p.code, License: "GPL"})
		if err != nil {
			return nil, unsupported("load the eBPF program "+p.name, err)
		}
		t.progs = append(t.progs, prog)
	}

	if t.events, err = ringbuf.NewReader(t.maps.events); err != nil {
		return nil, unsupported("read the ring of events", err)
	}

	return t, t.Watch(os.Getpid())
}

// attach begins recording.
func (t *Tracer) attach() error {
	for i, name := range []string{"map", "unmap"} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: t.progs[i]})
		switch {
		case err == nil:
			t.links = append(t.links, l)
		case errors.Is(err, unix.ENOENT):
			return gpuerr.New(gpuerr.Unimplemented, "this kernel has no tracepoint iommu:%s: it was built without an IOMMU", name)
		default:
			return unsupported("attach to the tracepoint iommu:"+name, err)
		}
	}
	return nil
}

func unsupported(verb string, err error) error {
	hint := "the kernel must have eBPF ring buffers (5.8) and the process CAP_BPF and CAP_PERFMON, or be root"
	return gpuerr.New(gpuerr.Unimplemented, "%s: %v; %s", verb, err, hint)
}

// ownNamespace is the PID namespace in which this process numbers its threads. The
// kernel compares the device in its own encoding (MKDEV in linux/kdev_t.h).
func ownNamespace() (namespace, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return namespace{}, unsupported("look at the PID namespace in /proc/self/ns/pid", err)
	}
	return namespace{device: uint64(unix.Major(st.Dev))<<20 | uint64(unix.Minor(st.Dev)), inode: st.Ino}, nil
}

// Watch makes events of a process count; of one in another PID namespace by its
// number in the first one.
func (t *Tracer) Watch(pid int) error {
	if err := t.maps.watched.Put(uint32(pid), uint8(1)); err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	return nil
}

// Unwatch is for a process that is gone, before its number is used again.
func (t *Tracer) Unwatch(pid int) error {
	if err := t.maps.watched.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("stop watching process %d: %w", pid, err)
	}
	return nil
}

// FindVFIO looks for vfio's text, and then counts only maps that vfio asks for. It is called
// after the type1 back end was loaded, which opening a container does. Until then, and when
// it returns an error, every call counts.
func (t *Tracer) FindVFIO() error {
	text, err := vfioText()
	if err != nil {
		return err
	}
	return t.setText(text)
}

func (t *Tracer) setText(text [2]uint64) error {
	if err := t.maps.text.Put(uint32(0), text); err != nil {
		return fmt.Errorf("tell the eBPF programs where vfio is: %w", err)
	}
	return nil
}

// Read passes events to fn until deadline, and returns nil then, when every event of before
// the deadline was passed. A deadline that has passed waits for nothing. It is gpuerr.Closed
// after Close.
func (t *Tracer) Read(deadline time.Time, fn func(Event)) error {
	t.events.SetDeadline(deadline)
	for {
		switch err := t.events.ReadInto(&t.record); {
		case err == nil:
			if e, ok := decode(t.record.RawSample); ok {
				fn(e)
			}
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ringbuf.ErrFlushed):
			return nil
		case errors.Is(err, os.ErrClosed):
			return gpuerr.New(gpuerr.Closed, "the IOMMU tracer is closed")
		default:
			return fmt.Errorf("read the ring of the IOMMU tracer: %w", err)
		}
	}
}

// Kick makes a Read that waits return as at its deadline.
func (t *Tracer) Kick() error { return t.events.Flush() }

// Counts returns the number of events that were not recorded.
func (t *Tracer) Counts() (Counts, error) {
	var c [counters]uint64
	if err := t.maps.counters.Lookup(uint32(0), &c); err != nil {
		return Counts{}, fmt.Errorf("read the counters of the IOMMU tracer: %w", err)
	}
	return Counts{Lost: c[counterLost], Foreign: c[counterForeign]}, nil
}

// Close ends recording, and every Read. Idempotent.
func (t *Tracer) Close() error {
	t.closing.Do(func() {
		var errs []error
		for _, l := range t.links {
			errs = append(errs, l.Close())
		}
		if t.events != nil {
			errs = append(errs, t.events.Close())
		}
		for _, p := range t.progs {
			errs = append(errs, p.Close())
		}
		for _, m := range []*ebpf.Map{t.maps.events, t.maps.watched, t.maps.text, t.maps.counters} {
			errs = append(errs, m.Close()) // nil is fine
		}
		t.err = errors.Join(errs...)
	})
	return t.err
}
