// Command streams adds two vectors in pieces: on two streams, so that one piece is copied to the
// device while another is added. It prints the result, and how much of the time both streams were
// busy.
//
//	streams [SOCKET]
//
// SOCKET is the tenant socket, /run/capgpu/default.sock if it is not given.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"capgpu/accel"
	"capgpu/client"
)

func main() {
	socket := "/run/capgpu/default.sock"
	if len(os.Args) > 1 {
		socket = os.Args[1]
	}
	if err := run(context.Background(), socket, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

const (
	pieces = 8
	size   = 1 << 16 // elements of a piece
)

func run(ctx context.Context, socket string, out, perf io.Writer) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	trace := accel.NewTrace()
	gpu, err := accel.Open(ctx, conn, accel.Options{Trace: trace})
	if err != nil {
		return err
	}
	defer gpu.Close(ctx)

	add, err := gpu.Kernel(ctx, "vecadd_f32")
	if err != nil {
		return err
	}
	copies, err := accel.NewStream[accel.PinnedHost](ctx, gpu)
	if err != nil {
		return err
	}
	sums, err := accel.NewStream[accel.Gpu](ctx, gpu)
	if err != nil {
		return err
	}

	var inputs []*accel.Buffer[float32, accel.PinnedHost]
	var results []*accel.Buffer[float32, accel.Unified]
	for i := range pieces {
		var on [2]*accel.Buffer[float32, accel.Device]
		var copied accel.Event[accel.PinnedHost]
		for k, v := range []float32{float32(i), 0.5} {
			from, err := accel.Alloc[float32, accel.PinnedHost](ctx, gpu, size)
			if err != nil {
				return err
			}
			values, err := accel.Slice(from)
			if err != nil {
				return err
			}
			for at := range values {
				values[at] = v
			}
			if on[k], err = accel.Alloc[float32, accel.Device](ctx, gpu, size); err != nil {
				return err
			}
			if copied, err = accel.Copy(copies, on[k], from); err != nil {
				return err
			}
			inputs = append(inputs, from)
		}

		sum, err := accel.Alloc[float32, accel.Unified](ctx, gpu, size)
		if err != nil {
			return err
		}
		if err := sums.Wait(copied); err != nil { // on the device; this goroutine goes on
			return err
		}
		if _, err := sums.Launch(accel.Launch{Kernel: add, Args: []accel.Argument{accel.Arg(on[0]), accel.Arg(on[1]), accel.Arg(sum)}}); err != nil {
			return err
		}
		results = append(results, sum)
	}

	if err := sums.Synchronize(ctx); err != nil { // gives back all that was borrowed
		return err
	}
	for _, from := range inputs {
		if err := from.Free(ctx); err != nil {
			return err
		}
	}
	for _, sum := range results {
		values, err := accel.Slice(sum)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, values[size-1])
		if err := sum.Free(ctx); err != nil {
			return err
		}
	}
	return trace.WritePerf(perf)
}
