// Command matmul multiplies two matrices with a program that uses shared memory.
//
//	matmul [SOCKET]
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"

	"capgpu/client"
)

//go:embed matmul.spv
var module []byte // of matmul.comp

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

	const n = 256 // all of them n×n
	var bindings []client.Binding
	var values [][]float32 // the buffers' memory, in this process
	for _, elements := range []uint64{n * n, n * n, n * n} {
		buffer, err := session.CreateBuffer(ctx, elements*4, client.Storage)
		if err != nil {
			return err
		}
		memory, err := client.MapAs[float32](buffer)
		if err != nil {
			return err
		}
		defer buffer.Unmap()
		bindings, values = append(bindings, client.Binding{Buffer: buffer, Len: elements * 4}), append(values, memory)
	}

	for i := range n { // a: the identity, but for a factor; b: 0, 1, 2, …
		values[0][i*n+i] = 2
	}

	for i := range values[1] {
		values[1][i] = float32(i)
	}

	inline := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, n), 3) // m, n and k
	queue, err := session.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	tile, tiles := client.Dim3{X: 16, Y: 16, Z: 1}, client.Dim3{X: n / 16, Y: n / 16, Z: 1}
	if err := queue.Run(ctx, &client.Launch{Program: program, Bindings: bindings, Inline: inline, Grid: tiles, Block: tile}); err != nil {
		return err
	}

	fmt.Fprintf(out, "c[%d][%d] = %v\n", n-1, n-1, values[2][n*n-1])
	return nil
}
