package vulkan

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// loader finds functions of libvulkan.so.1 and calls them.
type loader struct {
	getInstanceProc uintptr
	instance        uintptr
	procs           map[string]uintptr
}

func openLoader() (*loader, error) {
	lib, err := purego.Dlopen("libvulkan.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("open libvulkan.so.1 (Debian: libvulkan1): %w", err)
	}
	get, err := purego.Dlsym(lib, "vkGetInstanceProcAddr")
	if err != nil {
		return nil, fmt.Errorf("find vkGetInstanceProcAddr: %w", err)
	}
	return &loader{getInstanceProc: get, procs: map[string]uintptr{}}, nil
}

// call calls the named function. The targets of args must be reachable from them
// only by unsafe.Pointers, and stay in place until the call returns.
//
//go:uintptrescapes
func (l *loader) call(name string, args ...uintptr) (uintptr, error) {
	fn, ok := l.procs[name]
	if !ok {
		cname := append([]byte(name), 0)
		fn, _, _ = purego.SyscallN(l.getInstanceProc, l.instance, uintptr(unsafe.Pointer(&cname[0])))
		if fn == 0 {
			return 0, fmt.Errorf("the Vulkan loader has no %s", name)
		}
		l.procs[name] = fn
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r, nil
}

// do calls a function that returns a VkResult; any result but VK_SUCCESS is an
// error.
//
//go:uintptrescapes
func (l *loader) do(name string, args ...uintptr) error {
	r, err := l.call(name, args...)
	if err != nil {
		return err
	}
	if code := int32(r); code != 0 {
		return &Result{Call: name, Code: code}
	}
	return nil
}

func cString(s string) unsafe.Pointer {
	b := append([]byte(s), 0)
	return unsafe.Pointer(&b[0])
}

// goString is the text up to the first zero byte.
func goString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
