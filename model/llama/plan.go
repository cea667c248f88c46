package llama

import (
	"context"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model"
)

// Size is a loaded model's use of a session's resources, as charged.
type Size struct {
	Parameters uint64 // elements of the file's matrices and norms
	// Device memory: weights; keys and values; what a pass works in, with its inputs and
	// outputs where those are device memory, too.
	WeightBytes, CacheBytes, WorkBytes uint64
	// LoadBytes is device memory that is used only while loading: a recording.
	LoadBytes uint64
	// HostBytes is the hostMemory charge of the lists of passes; on a device with memory of its
	// own also of inputs, outputs and a recording.
	HostBytes                uint64
	Buffers, Programs, Lists int
	QueueSlots               int
	Positions, Pages         int // of the cache
}

// DeviceBytes is the peak of the device memory that Load uses.
func (s *Size) DeviceBytes() uint64 {
	return s.WeightBytes + s.CacheBytes + s.WorkBytes + s.LoadBytes
}

// Plan returns what Load will request. With Options.Positions 0 it plans as many
// positions as all sequences can use; Load takes fewer if the budget is smaller.
func Plan(f *model.File, o Options) (Size, error) {
	b, err := Draw(f, o, 0)
	if err != nil {
		return Size{}, err
	}
	return b.Size(), nil
}

// Size is the blueprint's use of a session's resources.
func (b *Blueprint) Size() Size {
	l := layout{buffers: b.Buffers}
	s := Size{
		Parameters:  b.parameters(),
		WeightBytes: l.sum(weights), CacheBytes: l.sum(cache), WorkBytes: l.sum(work) + l.sum(shared),
		Buffers: len(b.Buffers), Programs: len(b.programs()), QueueSlots: queueEntries,
		Positions: b.pages * b.options.PagePositions, Pages: b.pages,
	}
	for _, r := range b.routines().all() {
		for _, part := range split(r.launches) {
			s.Lists++
			s.HostBytes += listCharge(part)
			s.LoadBytes = max(s.LoadBytes, charged(recordingBytes(part)))
		}
	}

	if b.local {
		s.HostBytes += l.sum(shared) + s.LoadBytes
		s.WorkBytes, s.LoadBytes = l.sum(work), 0
	}
	return s
}

func (b *Blueprint) parameters() uint64 {
	c, traits := &b.config, b.config.Arch.Traits()
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	layer := c.Dim*(2*qDim+2*kvDim) + 3*c.Dim*c.Hidden + 2*c.Dim
	layer += asInt(traits.Biases)*(qDim+2*kvDim) + asInt(traits.HeadNorms)*2*c.HeadDim + asInt(traits.PostNorms)*2*c.Dim
	n := uint64(c.Vocab)*uint64(c.Dim) + uint64(c.Layers)*uint64(layer) + uint64(c.Dim)
	if len(b.weights.output) != 1 || b.weights.output[0].w != b.weights.embed.w {
		n += uint64(c.Vocab) * uint64(c.Dim)
	}
	return n
}

// leastPositions is the minimum of a cache sized by the budget, or a whole context.
const leastPositions = 512

// fit plans a model for a session, as large as the session has room for. Its error
// says what is missing, before anything was made. most bounds the device memory.
func fit(ctx context.Context, s *client.Session, f *model.File, o Options, most uint64) (*Blueprint, error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}

	entries, err := s.Budget(ctx)
	if err != nil {
		return nil, err
	}

	free := map[string]uint64{}
	for _, e := range entries {
		free[e.Resource] = e.Limit - min(e.Used, e.Limit)
	}

	free["deviceMemory"] = min(free["deviceMemory"], most)
	if d.Device.MemoryBytes != 0 {
		free["deviceMemory"] = min(free["deviceMemory"], d.Device.MemoryBytes)
	}

	pack := min(packBytes, d.MaxBufferBytes)
	b, err := Draw(f, o, pack)
	if err != nil {
		return nil, err
	}

	b.local = d.LocalBytes > 0
	if o.Positions == 0 {
		if b, err = b.shrink(f, free["deviceMemory"], d.MaxBufferBytes, pack); err != nil {
			return nil, err
		}
	}

	return b, b.check(free, d.MaxBufferBytes)
}

// shrink removes pages until the rest fits the memory.
func (b *Blueprint) shrink(f *model.File, memory, mostBuffer, pack uint64) (*Blueprint, error) {
	least := pagesFor(min(b.options.Context, leastPositions), b.options.PagePositions)
	perPage := 2 * uint64(len(b.weights.layers)) * b.pageBytes()
	pages := int(min(uint64(b.pages), max(mostBuffer/b.pageBytes(), uint64(least))))
	for pages > least {
		size := b.Size()
		over := size.DeviceBytes() - min(size.DeviceBytes(), memory)
		if over == 0 && pages == b.pages {
			return b, nil
		}
		if pages == b.pages {
			pages -= int(min((over+perPage-1)/perPage, uint64(pages-least)))
		}
		smaller, err := b.withPages(f, pages, pack)
		if err != nil {
			return nil, err
		}
		b = smaller
	}

	return b.withPages(f, pages, pack)
}

func (b *Blueprint) withPages(f *model.File, pages int, pack uint64) (*Blueprint, error) {
	o := b.options
	o.Positions = pages * o.PagePositions
	smaller, err := Draw(f, o, pack)
	if err != nil {
		return nil, err
	}
	smaller.local = b.local
	return smaller, nil
}

// check compares the plan with what the session has left.
func (b *Blueprint) check(free map[string]uint64, mostBuffer uint64) error {
	for i := range b.Buffers {
		if p := &b.Buffers[i]; p.Bytes > mostBuffer {
			return gpuerr.New(gpuerr.Invalid, "%s: needs a buffer of %d bytes, and the device makes none of more than %d", p.Name, p.Bytes, mostBuffer)
		}
	}

	size := b.Size()
	for _, need := range []struct {
		resource string
		asked    uint64
	}{
		{"deviceMemory", size.DeviceBytes()},
		{"buffers", uint64(size.Buffers) + 1}, // and one to record a list
		{"programs", uint64(size.Programs)},
		{"queueSlots", uint64(size.QueueSlots)},
		{"hostMemory", size.HostBytes},
	} {
		if available, known := free[need.resource]; known && need.asked > available {
			e := gpuerr.Refused(need.resource, need.asked, available)
			e.Msg = "the session has no room for the model"
			return e
		}
	}

	return nil
}
