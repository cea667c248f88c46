package vulkan

import (
	"fmt"
	"os"
	"strings"

	"capgpu/gpu/backend/engine/wire"
)

// facts are all that is asked of a physical device before it is opened.
type facts struct {
	wire.Device
	api        uint32
	discrete   bool
	software   bool // it computes on the host's processor
	extensions map[string]bool
	hostAlign  uint64  // of imported memory
	family     int     // of the queue; -1: none has compute
	queues     uint32  // of that family
	stampBits  uint32  // of that family
	period     float64 // nanoseconds of one step of its time stamps
	robust     bool
	timeline   bool
	storage8   bool
	wanted     features
}

// refusal says what the device lacks; empty: nothing.
func (f *facts) refusal() string {
	const needs = "%s has no %s"
	switch {
	case f.api < vk12:
		return fmt.Sprintf("%s has Vulkan %d.%d, and 1.2 is the least that will do", f.Name, f.api>>22&0x7F, f.api>>12&0x3FF)
	case !f.robust:
		return fmt.Sprintf(needs+": a program would reach memory outside its bindings", f.Name, "robustBufferAccess")
	case !f.extensions[externalHost]:
		return fmt.Sprintf(needs+": it would not reach the memory of clients", f.Name, externalHost)
	case f.hostAlign == 0 || f.hostAlign > uint64(os.Getpagesize()):
		return fmt.Sprintf("%s imports memory in pieces of %d bytes, and clients have it in pages of %d", f.Name, f.hostAlign, os.Getpagesize())
	case !f.timeline:
		return fmt.Sprintf(needs+": the ends of runs could not be told apart", f.Name, "timeline semaphores")
	case !f.storage8:
		return fmt.Sprintf(needs+": single bytes could not be copied", f.Name, "8-bit storage")
	case f.family < 0:
		return fmt.Sprintf(needs+": it computes nothing", f.Name, "queue for compute")
	case f.stampBits == 0 || f.period <= 0:
		return fmt.Sprintf(needs+": device time could not be charged", f.Name, "time stamps on its queue for compute")
	}
	return ""
}

// choose is the index of the device with that PCI address, or of the first that lacks nothing.
func choose(all []facts, address string) (int, error) {
	var why []string
	for i := range all {
		f := &all[i]
		if address != "" && !strings.EqualFold(f.PCIAddress, address) {
			continue
		}
		reason := f.refusal()
		if reason == "" {
			return i, nil
		}
		why = append(why, reason)
	}

	switch {
	case len(why) > 0:
		return 0, fmt.Errorf("%s", strings.Join(why, "; "))
	case address != "":
		return 0, fmt.Errorf("no Vulkan device has the PCI address %s (there are %d devices)", address, len(all))
	default:
		return 0, fmt.Errorf("the Vulkan drivers of this machine have no device")
	}
}
