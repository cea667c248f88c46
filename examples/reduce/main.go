// Command reduce adds up a million numbers: each workgroup a part, in a tree in
// shared memory, and the rest here.
//
//	reduce [SOCKET]
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"

	"capgpu/client"
)

//go:embed reduce.spv
var module []byte // of reduce.comp

func main() {
	socket := "/run/capgpu/default.sock"
	if len(os.Args) > 1 {
		socket = os.Args[1]
	}
	if err := run(context.Background(), socket, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, socket string, out io.Writer) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()

	session, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	defer session.Close(ctx) // ends everything below

	program, err := session.LoadProgram(ctx, module)
	if err != nil {
		return err
	}

	const n, groups = 1 << 20, 64
	var bindings []client.Binding
	var values [][]uint32 // the buffers' memory, in this process
	for _, elements := range []uint64{n, groups} {
		buffer, err := session.CreateBuffer(ctx, elements*4, client.Storage)
		if err != nil {
			return err
		}
		memory, err := client.MapAs[uint32](buffer)
		if err != nil {
			return err
		}
		defer buffer.Unmap()
		bindings, values = append(bindings, client.Binding{Buffer: buffer, Len: elements * 4}), append(values, memory)
	}

	for i := range n {
		values[0][i] = uint32(i % 10)
	}

	queue, err := session.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	launch := &client.Launch{Program: program, Bindings: bindings, Grid: client.Dim3{X: groups, Y: 1, Z: 1}, Block: client.Dim3{X: 256, Y: 1, Z: 1}}
	if err := queue.Run(ctx, launch); err != nil {
		return err
	}

	var sum uint32
	for _, part := range values[1] {
		sum += part
	}

	fmt.Fprintf(out, "sum = %d\n", sum)
	return nil
}
