package accel

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"time"

	"capgpu/client"
)

// Kernel is code that a GPU may launch. It ends with its GPU.
type Kernel struct {
	g       *GPU
	program *client.Program
	info    client.ProgramInfo
}

// Kernel opens a kernel of the device's library (docs/kernels.md).
func (g *GPU) Kernel(ctx context.Context, name string) (*Kernel, error) {
	if err := g.check("Kernel"); err != nil {
		return nil, err
	}
	p, err := g.session.OpenProgram(ctx, name)
	return g.kernel(ctx, "Kernel "+name, p, err)
}

// Load hands the device a kernel: SPIR-V, bare or in a bundle (docs/program-profile.md). A kernel
// that is refused is a gpuerr.Program, which says where and why.
func (g *GPU) Load(ctx context.Context, bundle []byte) (*Kernel, error) {
	if err := g.check("Load"); err != nil {
		return nil, err
	}
	p, err := g.session.LoadProgram(ctx, bundle)
	return g.kernel(ctx, "Load", p, err)
}

func (g *GPU) kernel(ctx context.Context, op string, p *client.Program, err error) (*Kernel, error) {
	if err != nil {
		return nil, g.wrap(ctx, EnqueueFailed, op, err)
	}
	return &Kernel{g: g, program: p, info: p.Info()}, nil
}

// Info is what a launch is checked against.
func (k *Kernel) Info() client.ProgramInfo { return k.info }

// Close ends the kernel; launches of it that have not ended end as revoked.
func (k *Kernel) Close(ctx context.Context) error {
	if err := k.program.Close(ctx); err != nil {
		return wrap(DeviceUnavailable, "Close "+k.info.Name, err)
	}
	return nil
}

// Launch is a kernel, its shape and its arguments. In Grid and Block a zero component after one that
// is not zero counts as 1. A Block of zeros is the kernel's own; with a Grid of zeros as well the
// launch has its natural grid, which covers its buffers once.
type Launch struct {
	Kernel      *Kernel
	Grid, Block [3]uint32     // blocks; threads of a block
	SharedMem   uint32        // bytes of dynamic shared memory
	Args        []Argument    // buffers are the bindings in their order, values the inline fields in theirs
	Deadline    time.Duration // 0: the policy's
}

// Argument is a buffer or a value for a kernel.
type Argument struct {
	memory *memory
	value  uint64 // its bits
	bytes  int    // of the value; 0: the argument is a buffer, or inline
	leaf   string
	inline []byte
	raw    bool   // without a type
	off    uint64 // bytes
	part   uint64 // bytes of the buffer; 0: all
}

// Arg is a buffer as an argument.
func Arg[T any, S DeviceSide](b *Buffer[T, S]) Argument {
	if b == nil {
		return Argument{}
	}
	return Argument{memory: b.memory}
}

// Value is a scalar as an argument.
func Value[T Scalar](v T) Argument {
	l := layoutOf[T]()
	a := Argument{bytes: int(l.bytes), leaf: l.leaf}
	switch l.leaf {
	case "f32":
		a.value = uint64(math.Float32bits(float32(v)))
	case "f64":
		a.value = math.Float64bits(float64(v))
	default:
		a.value = uint64(v)
	}
	return a
}

// prepare makes l the command of a stream that the caller holds.
func (s *stream) prepare(op string, l *Launch) error {
	k := l.Kernel
	if k == nil || k.g != s.g {
		return refuse(EnqueueFailed, op, "Kernel: missing, or of another GPU")
	}
	grid, block, err := s.g.shape(op, k, l)
	if err != nil {
		return err
	}
	c := &s.launch
	c.Program, c.Grid, c.Block, c.SharedBytes, c.Deadline = k.program, grid, block, l.SharedMem, l.Deadline

	c.Bindings, s.uses = c.Bindings[:0], s.uses[:0]
	c.Inline = append(c.Inline[:0], make([]byte, k.info.InlineBytes)...)
	bindings, fields := k.info.Bindings, k.info.Inline
	for i, a := range l.Args {
		if a.raw && a.memory == nil {
			if fields, err = covered(op, i, fields, a.inline, c.Inline); err != nil {
				return err
			}
			continue
		}
		if a.bytes == 0 {
			if len(bindings) == 0 {
				return refuse(EnqueueFailed, op, "Args: argument %d is a buffer more than the kernel has", i)
			}
			want := bindings[0]
			bindings = bindings[1:]
			if a.memory == nil || a.memory.g != s.g {
				return refuse(EnqueueFailed, op, "Args: argument %d (%s): the buffer is missing, or of another GPU", i, want.Name)
			}
			if !a.raw && !a.memory.layout.fits(want.Type) {
				return refuse(EnqueueFailed, op, "Args: argument %d (%s): the kernel takes elements of type %s, not %s", i, want.Name, want.Type, a.memory.layout.leaf)
			}
			part := client.Binding{Buffer: a.memory.shared, Off: a.off, Len: cmp.Or(a.part, a.memory.bytes())}
			c.Bindings = append(c.Bindings, part)
			s.uses = append(s.uses, use{a.memory, want.Access&client.Write != 0})
			continue
		}

		if len(fields) == 0 {
			return refuse(EnqueueFailed, op, "Args: argument %d is a value more than the kernel has", i)
		}
		want := fields[0]
		fields = fields[1:]
		if a.leaf != want.Type {
			return refuse(EnqueueFailed, op, "Args: argument %d (%s): the kernel takes a value of type %s, not %s", i, want.Name, want.Type, a.leaf)
		}
		if uint64(want.Off)+uint64(a.bytes) > uint64(len(c.Inline)) {
			return refuse(EnqueueFailed, op, "Args: argument %d (%s): the kernel's description has it beyond its %d inline bytes", i, want.Name, len(c.Inline))
		}
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], a.value)
		copy(c.Inline[want.Off:], word[:a.bytes])
	}
	if len(bindings) > 0 || len(fields) > 0 {
		return refuse(EnqueueFailed, op, "Args: %d buffers and %d values are missing", len(bindings), len(fields))
	}
	return nil
}

// covered puts raw bytes at the first of the fields, and returns those that they leave.
func covered(op string, i int, fields []client.FieldInfo, p, inline []byte) ([]client.FieldInfo, error) {
	var begin, end int
	for n, f := range fields {
		if n == 0 {
			begin = int(f.Off)
		}
		if end = int(f.Off) + fieldBytes[f.Type]; end-begin == len(p) && end <= len(inline) {
			copy(inline[begin:], p)
			return fields[n+1:], nil
		}
	}
	return nil, refuse(EnqueueFailed, op, "Args: argument %d has %d bytes, and no field ends there", i, len(p))
}

// fieldBytes is the size of an inline field by its type.
var fieldBytes = map[string]int{"i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}

// shape is the grid and the block of a launch, within the limits of the device.
func (g *GPU) shape(op string, k *Kernel, l *Launch) (grid, block client.Dim3, err error) {
	grid, ok := dims(l.Grid)
	block, fine := dims(l.Block)
	if !ok || !fine || grid == (client.Dim3{}) && block != grid {
		return grid, block, refuse(EnqueueFailed, op, "Grid, Block: %v and %v: a dimension is zero", l.Grid, l.Block)
	}

	most := &g.limits
	threads := uint64(block.X) * uint64(block.Y) // below 2^32 in what follows
	for _, n := range []struct {
		what             string
		asked, available uint64
	}{
		{"Block in one dimension", uint64(max(block.X, block.Y, block.Z)), uint64(most.MaxBlockDim)},
		{"threads of Block in x and y", threads, uint64(most.MaxThreadsPerBlock)},
		{"threads of Block", min(threads, math.MaxUint32) * uint64(block.Z), uint64(most.MaxThreadsPerBlock)},
		{"Grid in one dimension", uint64(max(grid.X, grid.Y, grid.Z)), uint64(most.MaxGridDim)},
		{"bytes of shared memory", uint64(k.info.SharedBytes) + uint64(l.SharedMem), uint64(most.MaxSharedBytes)},
	} {
		if n.asked > n.available {
			return grid, block, limit(op, n.what, n.asked, n.available)
		}
	}
	if !k.info.BlockFree && block != (client.Dim3{}) && block != k.info.Block {
		return grid, block, refuse(EnqueueFailed, op, "Block: %v; the kernel has %v", block, k.info.Block)
	}
	return grid, block, nil
}

// dims fills up dimensions. ok is false where a zero comes before one that is not.
func dims(d [3]uint32) (full client.Dim3, ok bool) {
	if d == [3]uint32{} {
		return full, true
	}
	for i := range d[1:] {
		if d[1+i] == 0 {
			d[1+i] = 1
		}
	}
	return client.Dim3{X: d[0], Y: d[1], Z: d[2]}, d[0] != 0
}
