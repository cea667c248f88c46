package gate

import (
	"context"
	"strings"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxTransferBytes is the most that GpuBuffer.read and write move.
const maxTransferBytes = 64 << 10

// buffer implements GpuBuffer.
type buffer struct {
	object
	id  uint32
	mem *client.Buffer
}

func (s *session) CreateBuffer(ctx context.Context, call schema.GpuMemorySession_createBuffer) error {
	words, err := call.Args().Usage()
	if err != nil {
		return badArgument("usage", err)
	}

	usage, err := parseUsage(words)
	if err != nil {
		return err
	}

	bytes := call.Args().Bytes()
	if bytes == 0 || bytes > s.description.MaxBufferBytes {
		return gpuerr.New(gpuerr.Invalid, "bytes: %d is not from 1 to %d", bytes, s.description.MaxBufferBytes)
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	id, err := s.g.newID()
	if err != nil {
		return err
	}

	crashpoint.Here("gate.buffer.asked")
	mem, err := s.client.CreateBuffer(ctx, bytes, usage)
	if err != nil {
		return err
	}

	crashpoint.Here("gate.buffer.made")
	b := &buffer{object: s.newObject("buffer", mem), id: id, mem: mem}
	b.forget = s.buffers.add(id, b)
	return res.SetBuffer(schema.GpuBuffer(s.export(rpcguard.Spec{
		Name: "GpuBuffer", Gate: b.gate, Impl: b, Ends: "close",
		Methods: schema.GpuBuffer_Methods(nil, b), Shutdown: b.shutdown,
	})))
}

func parseUsage(words string) (client.Usage, error) {
	var usage client.Usage
	for _, word := range strings.Fields(words) {
		switch word {
		case "storage":
			usage |= client.Storage
		case "upload":
			usage |= client.Upload
		case "readback":
			usage |= client.Readback
		case "device":
			usage |= client.Device
		default:
			return 0, gpuerr.New(gpuerr.Invalid, "usage: %.32q is none of storage, upload, readback and device", word)
		}
	}
	return usage, nil
}

func (s *session) DestroyBuffer(ctx context.Context, call schema.GpuMemorySession_destroyBuffer) error {
	b, err := s.buffers.find(call.Args().Buffer(), "buffer")
	if err != nil {
		return err
	}
	return b.close(ctx)
}

func (b *buffer) Close(ctx context.Context, _ schema.GpuBuffer_close) error { return b.close(ctx) }

func (b *buffer) MapReadWrite(_ context.Context, call schema.GpuBuffer_mapReadWrite) error {
	fd, off, length := b.mem.Memory()
	if fd < 0 {
		_, _, _, err := b.mem.DupMemory() // says why
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetAddr(off)
	res.SetLen(length)
	return res.SetMemory(schema.SharedMemory(b.s.export(rpcguard.Spec{
		Name: "SharedMemory", Gate: b.gate, Impl: sharedMemory{}, DupFD: b.dupFD,
	})))
}

// sharedMemory implements SharedMemory, which has no methods.
type sharedMemory struct{}

func (b *buffer) dupFD() (int, error) {
	fd, _, _, err := b.mem.DupMemory()
	return fd, err
}

// Unmap implements GpuBuffer.unmap. It does nothing: the client itself manages its
// mappings.
func (b *buffer) Unmap(context.Context, schema.GpuBuffer_unmap) error { return nil }

func (b *buffer) Size(_ context.Context, call schema.GpuBuffer_size) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetBytes(b.mem.Size())
	return nil
}

func (b *buffer) Id(_ context.Context, call schema.GpuBuffer_id) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetId(b.id)
	return nil
}

func (b *buffer) Read(_ context.Context, call schema.GpuBuffer_read) error {
	off, length := call.Args().Offset(), uint64(call.Args().Length())
	if err := b.checkTransfer(off, length, "length"); err != nil {
		return err
	}
	data := make([]byte, length)
	if _, err := b.mem.ReadAt(data, int64(off)); err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetData(data)
}

func (b *buffer) Write(_ context.Context, call schema.GpuBuffer_write) error {
	data, err := call.Args().Data()
	if err != nil {
		return badArgument("data", err)
	}
	off := call.Args().Offset()
	if err := b.checkTransfer(off, uint64(len(data)), "data"); err != nil {
		return err
	}
	_, err = b.mem.WriteAt(data, int64(off))
	return err
}

func (b *buffer) checkTransfer(off, length uint64, field string) error {
	if length > maxTransferBytes {
		return gpuerr.New(gpuerr.Invalid, "%s: %d bytes; at most %d at once", field, length, maxTransferBytes)
	}
	return b.checkRange(off, length, "offset", field)
}

// checkRange refuses a range that is not within the buffer.
func (b *buffer) checkRange(off, length uint64, offField, lengthField string) error {
	size := b.mem.Size()
	if off > size {
		return gpuerr.New(gpuerr.Invalid, "%s: %d is not in the buffer of %d bytes", offField, off, size)
	}
	if length > size-off {
		return gpuerr.New(gpuerr.Invalid, "%s: %d bytes from offset %d go beyond the buffer of %d bytes", lengthField, length, off, size)
	}
	return nil
}
