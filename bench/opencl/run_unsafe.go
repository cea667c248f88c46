package opencl

import (
	"errors"
	"strings"
	"unsafe"
)

// options keep the compiler from changing the text's arithmetic; fusing is switched
// off in the text.
const options = "-cl-std=CL1.2"

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// run does a job and returns its bindings afterwards.
func (d *device) run(j *Job) (out [][]byte, err error) {
	var undo []func()
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}()

	made := func(release string, object uintptr) {
		undo = append(undo, func() { _, _ = d.call(release, object) })
	}

	kernel, err := d.build(j.Source, made)
	if err != nil {
		return nil, err
	}

	arg := uint32(0)
	bind := func(b []byte) (uintptr, error) {
		if len(b) == 0 {
			return 0, errors.New("a buffer without bytes")
		}
		object, err := d.create("clCreateBuffer", d.context, memReadWrite|memCopyHost, uintptr(len(b)), uintptr(unsafe.Pointer(&b[0])))
		if err != nil {
			return 0, err
		}
		made("clReleaseMemObject", object)
		err = d.do("clSetKernelArg", kernel, uintptr(arg), unsafe.Sizeof(object), uintptr(unsafe.Pointer(&object)))
		arg++
		return object, err
	}

	objects := make([]uintptr, len(j.Bindings))
	for i, b := range j.Bindings {
		if b == nil {
			continue
		}
		if objects[i], err = bind(b); err != nil {
			return nil, err
		}
	}

	if _, err := bind(j.Inline); err != nil {
		return nil, err
	}

	var global, local [3]uintptr
	for i := range 3 {
		local[i] = uintptr(j.Block[i])
		global[i] = uintptr(j.Grid[i]) * local[i]
	}

	err = d.do("clEnqueueNDRangeKernel", d.queue, kernel, 3, 0, uintptr(unsafe.Pointer(&global)), uintptr(unsafe.Pointer(&local)), 0, 0, 0)
	if err != nil {
		return nil, err
	}
	if err := d.do("clFinish", d.queue); err != nil {
		return nil, err
	}

	out = make([][]byte, len(j.Bindings))
	for i, b := range j.Bindings {
		if b == nil {
			continue
		}
		out[i] = make([]byte, len(b))
		err := d.do("clEnqueueReadBuffer", d.queue, objects[i], 1, 0, uintptr(len(b)), uintptr(unsafe.Pointer(&out[i][0])), 0, 0, 0)
		if err != nil {
			return nil, err
		}
	}

	return out, nil
}

// build makes the kernel of a source.
func (d *device) build(source string, made func(string, uintptr)) (uintptr, error) {
	text := []*byte{cString(source)}
	program, err := d.create("clCreateProgramWithSource", d.context, 1, uintptr(unsafe.Pointer(&text[0])), 0)
	if err != nil {
		return 0, err
	}

	made("clReleaseProgram", program)
	err = d.do("clBuildProgram", program, 1, uintptr(unsafe.Pointer(&d.id)), uintptr(unsafe.Pointer(cString(options))), 0, 0)
	var failed *Result
	if errors.As(err, &failed) {
		log := make([]byte, 1<<16)
		var n uintptr
		if d.do("clGetProgramBuildInfo", program, d.id, buildLog, uintptr(len(log)), uintptr(unsafe.Pointer(&log[0])), uintptr(unsafe.Pointer(&n))) == nil {
			failed.Log = strings.TrimRight(string(log[:min(int(n), len(log))]), "\x00")
		}
	}

	if err != nil {
		return 0, err
	}

	kernel, err := d.create("clCreateKernel", program, uintptr(unsafe.Pointer(cString("main_"))))
	if err != nil {
		return 0, err
	}

	made("clReleaseKernel", kernel)
	return kernel, nil
}
