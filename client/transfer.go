package client

import (
	"context"
	"io"

	"capgpu/gpuerr"
)

// Bytes come to and go from a buffer of usage Device by copies, through memory that both
// sides map.

// stageBytes is the most that a copy of Upload or Download moves. Two are under way at a time.
const stageBytes = 4 << 20

// Upload writes p into the buffer from off on, and returns when the device has it: also into
// a buffer of usage Device. It copies by way of a queue and a buffer that it makes for that,
// which are charged meanwhile; work that was submitted before is not waited for.
func (b *Buffer) Upload(ctx context.Context, p []byte, off uint64) error {
	if !b.device {
		_, err := b.WriteAt(p, int64(off))
		return err
	}
	return b.stage(ctx, p, off, Upload, func(t *transfer, part stagePart) error {
		if _, err := t.memory.WriteAt(p[part.at:part.at+part.n], int64(part.half)); err != nil {
			return err
		}
		return t.push(&Copy{Dst: b, DstOff: off + part.at, Src: t.memory, SrcOff: part.half, Bytes: part.n})
	}, nil)
}

// Download reads len(p) bytes of the buffer from off on, as Upload writes them.
func (b *Buffer) Download(ctx context.Context, p []byte, off uint64) error {
	if !b.device {
		n, err := b.ReadAt(p, int64(off))
		if err == io.EOF && n == len(p) {
			err = nil
		}
		return err
	}
	return b.stage(ctx, p, off, Readback, func(t *transfer, part stagePart) error {
		return t.push(&Copy{Dst: t.memory, DstOff: part.half, Src: b, SrcOff: off + part.at, Bytes: part.n})
	}, func(t *transfer, part stagePart) error {
		_, err := t.memory.ReadAt(p[part.at:part.at+part.n], int64(part.half))
		return err
	})
}

// transfer is what one Upload or Download makes.
type transfer struct {
	queue  *Queue
	memory *Buffer // two halves, which take turns
}

// stagePart is n bytes of the caller's, from at on, that go through one half.
type stagePart struct{ at, n, half uint64 }

func (t *transfer) push(c *Copy) error {
	if _, err := t.queue.PushCopy(c); err != nil {
		return err
	}
	return t.queue.Flush()
}

// await returns when the oldest copy has ended.
func (t *transfer) await(ctx context.Context) error {
	var done [1]Completion
	if _, err := t.queue.Completions(ctx, done[:]); err != nil {
		return err
	}
	return done[0].failure()
}

// stage moves p in parts: begin starts a copy, and end, unless it is nil, follows its end.
func (b *Buffer) stage(ctx context.Context, p []byte, off uint64, usage Usage, begin, end func(*transfer, stagePart) error) (err error) {
	total := uint64(len(p))
	if off > b.size || total > b.size-off {
		return gpuerr.New(gpuerr.Invalid, "%d bytes at %d are not within the buffer, which has %d", total, off, b.size)
	}
	if total == 0 {
		return nil
	}

	step := min(total, stageBytes)
	t := &transfer{}
	if t.memory, err = b.s.CreateBuffer(ctx, 2*step, usage); err != nil {
		return err
	}
	// Also when ctx has ended: what is left of it then goes with the session.
	defer t.memory.Close(context.WithoutCancel(ctx))
	if t.queue, err = b.s.CreateQueue(ctx, QueueOptions{Entries: 16}); err != nil {
		return err
	}
	defer t.queue.Close(context.WithoutCancel(ctx))

	var flight []stagePart
	for at := uint64(0); at < total || len(flight) > 0; {
		if at < total && len(flight) < 2 {
			part := stagePart{at, min(step, total-at), at / step % 2 * step}
			if err := begin(t, part); err != nil {
				return err
			}
			flight = append(flight, part)
			at += part.n
			continue
		}

		if err := t.await(ctx); err != nil {
			return err
		}
		if end != nil {
			if err := end(t, flight[0]); err != nil {
				return err
			}
		}
		flight = flight[1:]
	}

	return nil
}
