package zing

import (
	"context"
	"crypto/sha256"
	"errors"

	"capgpu/accel"
	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/spirv"
)

// library is the module id of the device's own programs.
const library = "capgpu"

// module is code by an id: the library, one of the config map, or one that the guest loaded.
type module struct {
	bytes   []byte // nil: the library
	fixed   bool   // the guest cannot unload it
	main    string // its entry point; "": not looked for
	kernels map[*device]map[string]*accel.Kernel
}

// maxModules bounds the modules that are kept for a guest, in this process too.
const maxModules = 1 << 10

// kernel finds a kernel of a module, and opens or loads it on the device when it is first used.
func (h *Host) kernel(d *device, moduleID, kernelID string) (*accel.Kernel, error) {
	m := h.modules[moduleID]
	if m == nil {
		return nil, fail("t_accel_kernel_not_found", "there is no module %q", moduleID)
	}
	name := kernelID
	if m.bytes != nil {
		name = ""
	}
	k := m.kernels[d][name]
	if k == nil {
		var err error
		if m.bytes == nil {
			k, err = d.gpu.Kernel(h.ctx, name)
		} else {
			k, err = d.gpu.Load(h.ctx, m.bytes)
		}
		if err != nil {
			return nil, err
		}
		m.keep(d, name, k)
	}
	if m.bytes != nil && m.main == "" {
		m.main = m.entry()
	}
	if m.bytes != nil && k.Info().Name != kernelID && m.main != kernelID {
		return nil, fail("t_accel_kernel_not_found", "module %q has the kernel %q", moduleID, k.Info().Name)
	}
	return k, nil
}

func (m *module) keep(d *device, name string, k *accel.Kernel) {
	if m.kernels == nil {
		m.kernels = map[*device]map[string]*accel.Kernel{}
	}
	if m.kernels[d] == nil {
		m.kernels[d] = map[string]*accel.Kernel{}
	}
	m.kernels[d][name] = k
}

// entry is the entry point of a module that a device has admitted: it has one.
func (m *module) entry() string {
	bundle, err := program.Parse(m.bytes)
	if err != nil {
		return ""
	}
	code, err := spirv.Parse(bundle.SPIRV)
	if err != nil || len(code.EntryPoints) != 1 || len(code.EntryPoints[0].Args) < 3 {
		return ""
	}
	name, _ := spirv.Text(code.EntryPoints[0].Args[2:])
	return name
}

// load is MODULE_LOAD: the module is admitted by the device before it has an id.
func (h *Host) load(d *device, bytes, hint []byte) (id string, err error) {
	if uint64(len(bytes)) > uint64(h.limits.MaxModule) || uint64(len(hint)) > uint64(h.limits.MaxNames) {
		return "", badParams("a module has at most %d bytes, a hint %d", h.limits.MaxModule, h.limits.MaxNames)
	}
	id = string(hint)
	if id == "" {
		id = program.DigestName(sha256.Sum256(bytes))
	}
	if old := h.modules[id]; old != nil {
		if len(bytes) > 0 && string(old.bytes) == string(bytes) {
			return id, nil
		}
		return "", badParams("there is another module %q", id)
	}

	if len(h.modules) >= maxModules {
		return "", fail("t_cap_denied", "a guest has at most %d modules: unload some", maxModules)
	}
	k, err := d.gpu.Load(h.ctx, bytes)
	if errors.Is(err, gpuerr.Program) || errors.Is(err, gpuerr.Invalid) {
		return "", fail("t_accel_module_invalid", "%v", err)
	} else if err != nil {
		return "", err
	}
	m := &module{bytes: append([]byte{}, bytes...)}
	m.keep(d, "", k)
	h.modules[id] = m
	return id, nil
}

// unload is MODULE_UNLOAD; it waits for the work of the module.
func (h *Host) unload(id string) error {
	m := h.modules[id]
	if m == nil {
		return errInvalid("there is no module %q", id)
	}
	if m.fixed {
		return fail("t_cap_denied", "the host has given module %q", id)
	}
	for d, kernels := range m.kernels {
		if len(d.queue) > 0 {
			_ = d.queue[len(d.queue)-1].wait() // each submission tells how it ended itself
		}
		for _, k := range kernels {
			if err := k.Close(context.WithoutCancel(h.ctx)); err != nil {
				return err
			}
		}
	}
	delete(h.modules, id)
	return nil
}
