package llama

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
	"capgpu/program/library"
)

// undoTime bounds how long a failed Load takes to free its buffers.
const undoTime = 10 * time.Second

// queueEntries is the largest number of replays in flight.
const queueEntries = 256

// Load puts a model into a session and records its passes. The file is not needed
// afterwards. If the session has no room for it, the error is gpuerr.Quota with the
// requested and the available amount, before anything is copied. On any error
// nothing of the model is left in the session.
func Load(ctx context.Context, s *client.Session, f *model.File, o Options) (_ *Model, err error) {
	m := &Model{session: s, programs: map[string]*client.Program{}}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		err = fmt.Errorf("load %s: %w", f.Name, err)
		if left := m.Close(ctx); left != nil {
			err = errors.Join(err, left)
		}
	}()

	if err := m.makeRoom(ctx, f, o); err != nil {
		return nil, err
	}
	if m.queue, err = s.CreateQueue(ctx, client.QueueOptions{Entries: queueEntries}); err != nil {
		return nil, err
	}

	m.routines = m.b.routines()
	for _, r := range m.routines.all() {
		if err := m.record(ctx, r); err != nil {
			return nil, err
		}
	}

	if err := m.upload(ctx, o.Progress); err != nil {
		return nil, err
	}
	if err := m.mapShared(); err != nil {
		return nil, err
	}

	m.size = m.b.Size()
	m.b.forget()
	return m, nil
}

// makeRoom makes the buffers and opens the programs. If the budget decides the size
// of the cache, and the session has less than it reports (its parent has limits of
// its own, and other sessions), makeRoom tries a smaller cache.
func (m *Model) makeRoom(ctx context.Context, f *model.File, o Options) error {
	for most := uint64(math.MaxUint64); ; {
		var err error
		if m.b, err = fit(ctx, m.session, f, o, most); err != nil {
			return err
		}

		if len(m.programs) == 0 {
			if err := m.openPrograms(ctx); err != nil {
				return err
			}
		}

		made, err := m.makeBuffers(ctx)
		if err == nil || o.Positions != 0 {
			return err
		}

		e := gpuerr.From(err)
		if e.Code != gpuerr.Quota || e.Resource != "deviceMemory" || made+e.Available >= most {
			return err
		}

		most = made + e.Available
		if err := m.closeBuffers(ctx); err != nil {
			return err
		}
	}
}

// openPrograms opens the library's kernels that the device has built in, and loads
// those that it lacks or has in another version.
func (m *Model) openPrograms(ctx context.Context) error {
	for _, name := range m.b.programs() {
		bundle, known := library.Bundle(name)
		digest, _ := library.Digest(name)
		if !known {
			return gpuerr.New(gpuerr.NoProgram, "%s: is not in the library of kernels", name)
		}

		p, err := m.session.OpenProgram(ctx, name)
		if err == nil && p.Info().Digest != client.Digest(digest) {
			if err := p.Close(ctx); err != nil {
				return err
			}
			p, err = nil, gpuerr.NoProgram
		}

		if errors.Is(err, gpuerr.NoProgram) {
			p, err = m.session.LoadProgram(ctx, bundle)
		}
		if err != nil {
			return fmt.Errorf("program %s: %w", name, err)
		}

		m.programs[name] = p
	}
	return nil
}

// makeBuffers makes the buffers and returns how much memory they are charged.
func (m *Model) makeBuffers(ctx context.Context) (made uint64, err error) {
	m.buffers = make([]*client.Buffer, len(m.b.Buffers))
	for i := range m.b.Buffers {
		p := &m.b.Buffers[i]
		buffer, err := m.session.CreateBuffer(ctx, p.Bytes, p.Usage)
		if err != nil {
			return made, fmt.Errorf("buffer of %s (%s): %w", p.Purpose, p.Name, err)
		}
		m.buffers[i] = buffer
		made += charged(p.Bytes)
	}
	return made, nil
}

// upload copies the weights from the mapped file to the device, by way of the memory that the
// logits will be in: nothing else is needed for it. A part is copied by the device at a time.
func (m *Model) upload(ctx context.Context, progress func(done, total uint64)) error {
	if progress == nil {
		progress = func(done, total uint64) {}
	}

	through := m.b.work.logits
	stage, err := m.view(through)
	if err != nil {
		return err
	}
	defer clear(stage)
	stage = stage[:min(len(stage), copyBytes)]

	total, done := m.b.uploadBytes(), uint64(0)
	progress(0, total)
	for i := range m.b.Buffers {
		if m.b.Buffers[i].Purpose != purposeNames[weights] {
			continue
		}

		err := m.b.fill(i, len(stage), func(off uint64, from []byte) error {
			if err := mapped.Copy(stage[:len(from)], from); err != nil {
				return err
			}
			part := client.Copy{Dst: m.buffers[i], DstOff: off, Src: m.buffers[through.buffer], SrcOff: through.off, Bytes: uint64(len(from))}
			if err := m.queue.Run(ctx, &part); err != nil {
				return err
			}
			done += uint64(len(from))
			progress(done, total)
			return ctx.Err()
		})
		if err != nil {
			return fmt.Errorf("copy %s: %w", m.b.Buffers[i].Name, err)
		}
	}

	return nil
}

// view is a piece of a buffer that is mapped.
func (m *Model) view(p piece) ([]byte, error) {
	memory, err := m.buffers[p.buffer].Map()
	if err != nil {
		return nil, err
	}
	return memory[p.off : p.off+p.bytes], nil
}

// mapShared maps the inputs and outputs of a pass.
func (m *Model) mapShared() error {
	b := m.b
	var table []uint32
	for _, u := range []struct {
		to *[]uint32
		p  piece
	}{{&m.shared.tokens, b.io.tokens}, {&m.shared.rows, b.io.rows}, {&m.shared.history, b.io.history}, {&table, b.io.table}} {
		bytes, err := m.view(u.p)
		if err != nil {
			return err
		}
		*u.to = client.View[uint32](bytes)
	}

	for _, f := range []struct {
		to *[]float32
		p  piece
	}{{&m.shared.logits, b.work.logits}, {&m.shared.counted, b.io.counted}, {&m.shared.vector, b.io.vector}} {
		bytes, err := m.view(f.p)
		if err != nil {
			return err
		}
		*f.to = client.View[float32](bytes)
	}

	m.pool.init(&b.options, b.pages, table)
	return nil
}
