// Command wasm runs a WebAssembly guest of the Zing ABI, in process:
//
//	wasm SOCKET GUEST.wasm
//
// SOCKET is the tenant socket. The guest's seven imports have the module name lembeh. It is a module
// of its own, so that nothing else links the WebAssembly runtime.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"capgpu/accel/zing"
	"capgpu/client"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: wasm SOCKET GUEST.wasm")
	}
	code, err := os.ReadFile(os.Args[2])
	if err == nil {
		err = run(context.Background(), os.Args[1], code, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// maxPages bounds the guest's memory: 64 MiB.
const maxPages = 1024

func run(ctx context.Context, socket string, code []byte, out io.Writer) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	host, err := zing.NewHost(ctx, zing.Config{Conn: conn, Ext: true, Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr})
	if err != nil {
		return err
	}
	defer host.Close()

	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPages).WithCloseOnContextDone(true))
	defer runtime.Close(ctx)
	if err := imports(ctx, runtime, host); err != nil {
		return err
	}
	wasi_snapshot_preview1.MustInstantiate(ctx, runtime) // for guests that a compiler links with WASI: it gives them nothing

	guest, err := runtime.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return err
	}
	entry, args := guest.ExportedFunction("lembeh_handle"), []uint64{0, 1}
	if entry == nil {
		entry, args = guest.ExportedFunction("_start"), nil
	}
	if entry == nil {
		return fmt.Errorf("the guest exports neither lembeh_handle nor _start")
	}
	_, err = entry.Call(ctx, args...)
	if exit, ok := err.(*sys.ExitError); ok && exit.ExitCode() == 0 {
		return nil
	}
	return err
}

// imports gives the guest the calls of the ABI. A range that is not in its memory is -1.
func imports(ctx context.Context, runtime wazero.Runtime, host *zing.Host) error {
	bytes := func(m api.Module, ptr, n int32) ([]byte, bool) {
		if ptr < 0 || n < 0 {
			return nil, false
		}
		return m.Memory().Read(uint32(ptr), uint32(n)) // the memory itself, not a copy
	}

	b := runtime.NewHostModuleBuilder("lembeh")
	export := func(name string, f any) { b.NewFunctionBuilder().WithFunc(f).Export(name) }
	export("req_read", func(_ context.Context, m api.Module, handle, ptr, n int32) int32 {
		p, ok := bytes(m, ptr, n)
		if !ok {
			return -1
		}
		return host.Read(handle, p)
	})
	export("res_write", func(_ context.Context, m api.Module, handle, ptr, n int32) int32 {
		p, ok := bytes(m, ptr, n)
		if !ok {
			return -1
		}
		return host.Write(handle, p)
	})
	export("res_end", func(_ context.Context, handle int32) { host.End(handle) })
	export("log", func(_ context.Context, m api.Module, topic, topicLen, msg, msgLen int32) {
		t, ok := bytes(m, topic, topicLen)
		s, fine := bytes(m, msg, msgLen)
		if ok && fine {
			host.Log(t, s)
		}
	})
	export("_ctl", func(_ context.Context, m api.Module, req, reqLen, resp, respCap int32) int32 {
		p, ok := bytes(m, req, reqLen)
		q, fine := bytes(m, resp, respCap)
		if !ok || !fine {
			return -1
		}
		return host.Ctl(append([]byte{}, p...), q) // the guest may have put one over the other
	})
	export("_alloc", func(_ context.Context, m api.Module, n int32) int32 {
		if n < 0 {
			return -1
		}
		before, ok := m.Memory().Grow((uint32(n) + 65535) >> 16)
		if !ok {
			return -1
		}
		return int32(before << 16)
	})
	export("_free", func(context.Context, int32) {}) // pages are not given back
	_, err := b.Instantiate(ctx)
	return err
}
