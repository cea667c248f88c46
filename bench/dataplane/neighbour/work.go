package neighbour

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"capgpu/client"
)

// Work is several launches with a known answer, one after the other, like a token
// of a language model. They take the device far longer than a client polls for a
// completion before it sleeps (200 µs). The client therefore sleeps meanwhile, and
// its neighbours, which have the lowest priority, get the CPU; otherwise a good
// neighbour would do next to nothing.
type Work struct {
	queue    *client.Queue
	launches []client.Command
	a, c     []byte // of the first operand and of the result
	round    uint32
}

// workElements are added in each of workLaunches.
const (
	workElements = 64 << 10
	workLaunches = 64
)

// addend is the second operand, everywhere.
const addend = 0.5

// NewWork makes its objects, in that session.
func NewWork(ctx context.Context, s *client.Session) (*Work, error) {
	add, err := s.OpenProgram(ctx, "vecadd_f32")
	if err != nil {
		return nil, err
	}

	w, launch := &Work{}, &client.Launch{Program: add}
	var mapped [3][]byte
	for i := range mapped {
		b, err := s.CreateBuffer(ctx, 4*workElements, client.Storage)
		if err != nil {
			return nil, err
		}
		if mapped[i], err = b.Map(); err != nil {
			return nil, err
		}
		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b})
	}

	w.launches = slices.Repeat([]client.Command{launch}, workLaunches)
	w.a, w.c = mapped[0], mapped[2]
	for i := range workElements {
		binary.LittleEndian.PutUint32(mapped[1][4*i:], math.Float32bits(addend))
	}

	w.queue, err = s.CreateQueue(ctx, client.QueueOptions{})
	return w, err
}

// places is the number of checked places of the result: enough to see that it is
// there, and too few to take the time of a launch.
const places = 16

// Do does it once, and checks the result, which is different each time.
func (w *Work) Do(ctx context.Context) error {
	w.round++
	x := float32(w.round % (1 << 20))
	for p := range places {
		i := w.place(p)
		binary.LittleEndian.PutUint32(w.a[i:], math.Float32bits(x+float32(p)))
		binary.LittleEndian.PutUint32(w.c[i:], 0)
	}

	if err := w.queue.Run(ctx, w.launches...); err != nil {
		return err
	}

	for p := range places {
		i := w.place(p)
		if got, want := math.Float32frombits(binary.LittleEndian.Uint32(w.c[i:])), x+float32(p)+addend; got != want {
			return fmt.Errorf("a wrong result that was called ok: element %d is %v and not %v", i/4, got, want)
		}
	}

	return nil
}

// place is a different place in each round.
func (w *Work) place(p int) int {
	return 4 * int((uint32(p)*(workElements/places)+w.round*7)%workElements)
}
