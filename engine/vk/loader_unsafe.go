package vk

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Loader finds functions of libvulkan.so.1 and calls them. It is for one goroutine at a
// time; behind Find calls of the named functions may come from any.
type Loader struct {
	Instance uintptr // once it is made
	Dev      uintptr // once it is made; its functions are then called without a detour
	ofInst   Proc
	ofDevice Proc
	procs    map[string]Proc
}

// Open opens libvulkan.so.1. It reads the environment that the process was started with.
func Open() (*Loader, error) {
	lib, err := purego.Dlopen("libvulkan.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("open libvulkan.so.1 (Debian: libvulkan1): %w", err)
	}
	get, err := purego.Dlsym(lib, "vkGetInstanceProcAddr")
	if err != nil {
		return nil, fmt.Errorf("find vkGetInstanceProcAddr: %w", err)
	}
	return &Loader{ofInst: Proc(get), procs: map[string]Proc{}}, nil
}

// Proc is a function of the library.
type Proc uintptr

// Call calls it. The targets of args must be reachable from them only by
// unsafe.Pointers, and stay in place until the call returns.
//
//go:uintptrescapes
func (p Proc) Call(args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(uintptr(p), args...)
	return r
}

// Proc is the named function.
func (l *Loader) Proc(name string) (Proc, error) {
	if fn, ok := l.procs[name]; ok {
		return fn, nil
	}

	cname := append([]byte(name), 0)
	fn := uintptr(0)
	if l.Dev != 0 {
		if l.ofDevice == 0 {
			get := CString("vkGetDeviceProcAddr")
			l.ofDevice = Proc(l.ofInst.Call(l.Instance, uintptr(get)))
		}
		fn = l.ofDevice.Call(l.Dev, uintptr(unsafe.Pointer(&cname[0])))
	}
	if fn == 0 {
		fn = l.ofInst.Call(l.Instance, uintptr(unsafe.Pointer(&cname[0])))
	}
	if fn == 0 {
		return 0, fmt.Errorf("the Vulkan loader has no %s", name)
	}
	l.procs[name] = Proc(fn)
	return Proc(fn), nil
}

// Find finds functions ahead.
func (l *Loader) Find(names ...string) error {
	for _, name := range names {
		if _, err := l.Proc(name); err != nil {
			return err
		}
	}
	return nil
}

// Call calls the named function; see Proc.Call.
//
//go:uintptrescapes
func (l *Loader) Call(name string, args ...uintptr) (uintptr, error) {
	fn, err := l.Proc(name)
	if err != nil {
		return 0, err
	}
	return fn.Call(args...), nil
}

// Do calls a function that returns a VkResult; any result but VK_SUCCESS is a *Result.
//
//go:uintptrescapes
func (l *Loader) Do(name string, args ...uintptr) error {
	r, err := l.Call(name, args...)
	if err != nil {
		return err
	}
	if code := int32(r); code != Success {
		return &Result{Call: name, Code: code}
	}
	return nil
}

// CString is text with a zero byte behind it.
func CString(s string) unsafe.Pointer {
	b := append([]byte(s), 0)
	return unsafe.Pointer(&b[0])
}

// GoString is the text up to the first zero byte.
func GoString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
