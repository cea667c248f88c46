package vfio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Error explains why the kernel did not do something: doing is a verb phrase. It
// keeps the error number for errors.Is, and an error that is typed already.
func Error(doing string, err error) error {
	if err == nil {
		return nil
	}

	var typed *gpuerr.Error
	var errno unix.Errno
	if errors.As(err, &typed) || !errors.As(err, &errno) {
		return fmt.Errorf("vfio: cannot %s: %w", doing, err)
	}

	code, hint := gpuerr.IO, ""
	switch errno {
	case unix.ENOTTY, unix.ENOSYS:
		code, hint = gpuerr.Unimplemented, "; this kernel or device does not have the call"
	case unix.ENODEV, unix.ENXIO:
		code, hint = gpuerr.DeviceLost, "; the device is gone"
	case unix.EBUSY:
		code, hint = gpuerr.Busy, "; another process holds it"
	case unix.EACCES:
		code, hint = gpuerr.Denied, "; run as root, or give this user the node below "+Dir
	case unix.EPERM:
		code, hint = gpuerr.Denied, "; the group is not viable, or interrupts cannot be remapped"
	case unix.ENOENT:
		code, hint = gpuerr.NoDevice, "; there is no such group: bind its devices to vfio-pci"
	case unix.EMFILE, unix.ENFILE:
		hint = "; raise the limit of open files"
	}

	return &failure{gpuerr.New(code, "vfio: cannot %s: %v%s", doing, errno, hint), errno}
}

// failure is an error with both its code and its number.
type failure struct {
	typed *gpuerr.Error
	errno unix.Errno
}

func (f *failure) Error() string   { return f.typed.Error() }
func (f *failure) Unwrap() []error { return []error{f.typed, f.errno} }
