//go:build wasip1

// Command guest is a guest of the Zing ABI in Go, for GOOS=wasip1 GOARCH=wasm: it adds two vectors on
// the device, and writes the sums to its output.
package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"unsafe"
)

//go:wasmimport lembeh req_read
func reqRead(handle int32, p unsafe.Pointer, n int32) int32

//go:wasmimport lembeh res_write
func resWrite(handle int32, p unsafe.Pointer, n int32) int32

//go:wasmimport lembeh _ctl
func ctl(req unsafe.Pointer, reqLen int32, resp unsafe.Pointer, respCap int32) int32

func read(handle int32, p []byte) int32 {
	return reqRead(handle, unsafe.Pointer(unsafe.SliceData(p)), int32(len(p)))
}

func write(handle int32, p []byte) int32 {
	return resWrite(handle, unsafe.Pointer(unsafe.SliceData(p)), int32(len(p)))
}

func h4(b []byte, v ...uint32) []byte {
	for _, v := range v {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func str(b []byte, s ...string) []byte {
	for _, s := range s {
		b = append(h4(b, uint32(len(s))), s...)
	}
	return b
}

// open is CAPS_OPEN of accel/default.
func open(mode uint32, params []byte) int32 {
	payload := append(h4(str(nil, "accel", "default"), mode, uint32(len(params))), params...)
	req := append(h4([]byte("ZCL1\x01\x00\x03\x00\x01\x00\x00\x00"), 0, 0, uint32(len(payload))), payload...)
	resp := make([]byte, 1024)
	n := ctl(unsafe.Pointer(unsafe.SliceData(req)), int32(len(req)), unsafe.Pointer(unsafe.SliceData(resp)), int32(len(resp)))
	if n < 36 || resp[20] != 1 {
		os.Exit(1)
	}
	return int32(binary.LittleEndian.Uint32(resp[24:]))
}

const count = 4

func main() {
	var buffers [3]int32
	for i := range buffers {
		buffers[i] = open(2, h4(str(nil, "spirv", "0"), 4*count, 0, 0))
	}
	for i := range 2 {
		var b []byte
		for k := range count {
			v := float32(k)
			if i == 1 {
				v = 0.5
			}
			b = h4(b, math.Float32bits(v))
		}
		if write(buffers[i], b) != 4*count {
			os.Exit(2)
		}
	}

	p := h4(str(nil, "spirv", "0", "capgpu", "vecadd_f32"), 1, 1, 1, 256, 1, 1, 0, 3)
	for _, b := range buffers {
		p = h4(p, 2, 4, uint32(b)) // a handle: kind 2, size 4
	}
	status, sums := make([]byte, 64), make([]byte, 4*count)
	if read(open(3, h4(p, 0)), status) < 1 || status[0] != 0 || read(buffers[2], sums) != 4*count {
		os.Exit(3)
	}
	var text []byte
	for k := range count {
		text = fmt.Appendln(text, math.Float32frombits(binary.LittleEndian.Uint32(sums[4*k:])))
	}
	if write(1, text) != int32(len(text)) {
		os.Exit(4)
	}
}
