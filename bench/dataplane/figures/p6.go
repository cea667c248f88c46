package figures

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
	"capgpu/client"
)

// bufferLife is P6.
func bufferLife(ctx context.Context, e *Env) (rows []report.Row, err error) {
	l, err := openLauncher(ctx, e.Service, 16)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	for _, mebibytes := range []int{16, 64} {
		r, err := lives(ctx, e, l, 0.2, mebibytes, false)
		if err != nil {
			return nil, err
		}
		rows = append(rows, report.Ratio("P6", fmt.Sprintf("buffer of %d MiB: create, map, touch, free / by a raw memfd of 4 KiB pages", mebibytes), r, report.AtMost(1.4, 1)))
	}

	r, err := lives(ctx, e, l, 0.2, 16, true)
	if err != nil {
		return nil, err
	}

	rows = append(rows, report.Ratio("P6", "the same of 16 MiB, each of another size, so that none is made ahead", r, report.Target{}))
	huge, err := hugeLives(ctx, e)
	if err != nil {
		return nil, err
	}

	rows = append(rows, huge...)
	copied, err := copiedBytes(ctx, e, l)
	if err != nil {
		return nil, err
	}

	return append(rows, report.Value("P6", "bytes that the service copies (client's writes seen by a kernel, its results seen by the client)", report.Number(copied), "", copied, "B", report.AtMost(0, 0))), nil
}

// lives compares the life of a buffer with that of a memfd of 4 KiB pages. The
// service makes memory in advance for sizes that are requested repeatedly: for
// uneven sizes no two buffers have the same size.
func lives(ctx context.Context, e *Env, l *launcher, part float64, mebibytes int, uneven bool) (paired.Result, error) {
	bytes, pages := mebibytes<<20, 0
	ours := func() error {
		if uneven {
			pages = (pages + 1) % sizesApart
		}
		return life(ctx, l.session, bytes+pages*peers.PageBytes)
	}
	raw := func() error { return peers.MemfdLife(bytes) }
	return paired.Compare(e.pairs(part), paired.Batches(1, ours), paired.Batches(1, raw))
}

// sizesApart is after how many a size repeats: the service remembers the last four.
// All are within half a percent of each other.
const sizesApart = 16

// life is the life of a buffer from a client's side.
func life(ctx context.Context, s *client.Session, bytes int) error {
	b, err := s.CreateBuffer(ctx, uint64(bytes), client.Storage)
	if err != nil {
		return err
	}
	mem, err := b.Map()
	if err != nil {
		return errors.Join(err, b.Close(ctx))
	}
	peers.Touch(mem)
	return errors.Join(b.Unmap(), b.Close(ctx))
}

const aliasBytes = 2 << 20

// copiedBytes is the part of three buffers that is not in the very pages that the
// driver has mapped. The kernel's numbers of the files prove that they are, and so
// does use: a launch adds up values stored through the client's mapping, twice, and
// its sums can be loaded, with no call between but the launch.
func copiedBytes(ctx context.Context, e *Env, l *launcher) (copied float64, err error) {
	pid, err := e.Service.DriverPID()
	if err != nil {
		return 0, err
	}

	var values [kernelBuffers][]float32
	launch := client.Launch{Program: l.launch.Program}
	for i := range values {
		b, err := l.session.CreateBuffer(ctx, aliasBytes, client.Storage)
		if err != nil {
			return 0, err
		}
		defer b.Close(ctx)

		if values[i], err = client.MapAs[float32](b); err != nil {
			return 0, err
		}
		defer b.Unmap()

		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b})
		fd, _, bytes := b.Memory()
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, err
		}

		driver, err := service.HoldingsOf(pid)
		if err != nil {
			return 0, err
		}
		if !driver.Mapped[st.Ino] {
			copied += float64(bytes)
		}
	}

	for round := range 2 {
		for i := range values[0] {
			values[0][i], values[1][i] = float32(i), float32(round+1)
		}
		if err := l.queue.Run(ctx, &launch); err != nil {
			return 0, err
		}
		for i, sum := range values[2] {
			if want := float32(i) + float32(round+1); sum != want {
				return 0, fmt.Errorf("round %d: element %d is %v and must be %v: the memory is not shared", round, i, sum, want)
			}
		}
	}

	return copied, nil
}
