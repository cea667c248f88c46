package vulkan

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpuerr"
)

// failed is the error of an order that the library refused. bytes is what it asked for, of
// memory.
func (d *Device) failed(doing string, bytes uint64, err error) error {
	var r *vk.Result
	switch {
	case errors.Is(err, host.ErrLost):
		return fmt.Errorf("%s: %w", doing, err)
	case !errors.As(err, &r):
		return fmt.Errorf("%s: %w", doing, gpuerr.New(gpuerr.Internal, "%v", err))
	}

	switch r.Code {
	case vk.DeviceLost:
		return fmt.Errorf("%s: %w", doing, d.lose(r))
	case vk.OutOfDeviceMemory:
		free, _ := d.localFree()
		refused := gpuerr.Refused("deviceMemory", bytes, free)
		refused.Msg = r.Error()
		return fmt.Errorf("%s: %w", doing, refused)
	case vk.OutOfHostMemory:
		refused := gpuerr.Refused("hostMemory", bytes, 0)
		refused.Msg = r.Error()
		return fmt.Errorf("%s: %w", doing, refused)
	default:
		return fmt.Errorf("%s: %w", doing, gpuerr.New(gpuerr.Internal, "%v", r))
	}
}

// lose notes that the device is lost, and why, and has Wait end.
func (d *Device) lose(why error) error {
	text := ""
	var r *vk.Result
	if errors.As(why, &r) && r.Code == vk.DeviceLost {
		text = d.faultText()
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost == nil {
		d.lost = fmt.Errorf("%w: %w%s", host.ErrLost, why, text)
		d.wake.Broadcast()
	}
	return d.lost
}

// most is how many addresses and vendor's words of a fault are asked for.
const most = 8

// faultText is what the driver tells of a lost device; empty where it tells nothing.
func (d *Device) faultText() string {
	if !d.extensions[vk.DeviceFault] || d.wanted.fault.Fault == 0 {
		return ""
	}

	var addresses [most]vk.FaultAddress
	var vendor [most]vk.FaultVendor
	counts := vk.FaultCounts{Head: vk.Head{SType: vk.TypeFaultCounts}, Addresses: most, Vendor: most}
	info := vk.FaultInfo{Head: vk.Head{SType: vk.TypeFaultInfo}, Addresses: unsafe.Pointer(&addresses), Vendor: unsafe.Pointer(&vendor)}
	code, err := d.Call("vkGetDeviceFaultInfoEXT", d.Dev, uintptr(unsafe.Pointer(&counts)), uintptr(unsafe.Pointer(&info)))
	if err != nil || int32(code) < 0 {
		return ""
	}

	var text strings.Builder
	fmt.Fprintf(&text, "; the driver says: %q", vk.GoString(info.Description[:]))
	for _, a := range addresses[:min(counts.Addresses, most)] {
		fmt.Fprintf(&text, ", address %#x of kind %d", a.Address, a.Kind)
	}
	for i := range vendor[:min(counts.Vendor, most)] {
		v := &vendor[i]
		fmt.Fprintf(&text, ", %q code %#x data %#x", vk.GoString(v.Description[:]), v.Code, v.Data)
	}
	return text.String()
}
