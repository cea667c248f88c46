package opencl

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Numbers of cl.h.
const (
	platformName  = 0x0902
	deviceAll     = 0xFFFFFFFF
	deviceName    = 0x102B
	driverVersion = 0x102D
	buildLog      = 0x1183
	memReadWrite  = 1 << 0
	memCopyHost   = 1 << 5
)

// device is PoCL's CPU with a context and a queue.
type device struct {
	lib, id, context, queue uintptr
	name                    string
	code                    int32 // of create's last call
	procs                   map[string]uintptr
}

// call calls a function of the library. The targets of args must be reachable from
// them only by unsafe.Pointers, and stay in place until the call returns.
//
//go:uintptrescapes
func (d *device) call(name string, args ...uintptr) (uintptr, error) {
	fn, ok := d.procs[name]
	if !ok {
		var err error
		if fn, err = purego.Dlsym(d.lib, name); err != nil {
			return 0, err
		}
		d.procs[name] = fn
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r, nil
}

// do calls a function that returns a code.
//
//go:uintptrescapes
func (d *device) do(name string, args ...uintptr) error {
	r, err := d.call(name, args...)
	if err == nil && int32(r) != 0 {
		err = &Result{Call: name, Code: int32(r)}
	}
	return err
}

// create calls a function that returns an object, and a code through its last
// parameter.
//
//go:uintptrescapes
func (d *device) create(name string, args ...uintptr) (uintptr, error) {
	r, err := d.call(name, append(args, uintptr(unsafe.Pointer(&d.code)))...)
	if err == nil && (d.code != 0 || r == 0) {
		err = &Result{Call: name, Code: d.code}
	}
	return r, err
}

// text is a property that is a string.
func (d *device) text(call string, object uintptr, property uintptr) (string, error) {
	b := make([]byte, 1024)
	if err := d.do(call, object, property, uintptr(len(b)), uintptr(unsafe.Pointer(&b[0])), 0); err != nil {
		return "", err
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.TrimSpace(string(b)), nil
}

func openDevice() (*device, error) {
	lib, err := purego.Dlopen("libOpenCL.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("open libOpenCL.so.1 (Debian: ocl-icd-libopencl1): %w", err)
	}

	d := &device{lib: lib, procs: map[string]uintptr{}}
	var platforms [16]uintptr
	var n uint32
	if err := d.do("clGetPlatformIDs", uintptr(len(platforms)), uintptr(unsafe.Pointer(&platforms)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, fmt.Errorf("no OpenCL platform (Debian: pocl-opencl-icd): %w", err)
	}

	for _, p := range platforms[:min(int(n), len(platforms))] {
		name, err := d.text("clGetPlatformInfo", p, platformName)
		if err != nil {
			return nil, err
		}
		if strings.Contains(name, "Portable Computing Language") {
			return d, d.open(p)
		}
	}

	return nil, errors.New("no PoCL among the OpenCL platforms (Debian: pocl-opencl-icd)")
}

func (d *device) open(platform uintptr) (err error) {
	if err := d.do("clGetDeviceIDs", platform, deviceAll, 1, uintptr(unsafe.Pointer(&d.id)), 0); err != nil {
		return err
	}

	name, err := d.text("clGetDeviceInfo", d.id, deviceName)
	if err != nil {
		return err
	}

	version, err := d.text("clGetDeviceInfo", d.id, driverVersion)
	if err != nil {
		return err
	}

	d.name = "PoCL " + version + ", " + name
	if d.context, err = d.create("clCreateContext", 0, 1, uintptr(unsafe.Pointer(&d.id)), 0, 0); err != nil {
		return err
	}

	d.queue, err = d.create("clCreateCommandQueue", d.context, d.id, 0)
	return err
}
