package vulkan

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/spirv"
)

// pipeline is a compiled program. Its bindings are bindings buffers, and the trap buffer
// behind them.
type pipeline struct {
	d         *Device
	handle    vk.Handle
	layout    vk.Handle
	bindings  int
	pushBytes int
}

// Compile implements host.Device.
func (d *Device) Compile(p *wire.Pipeline) (host.Pipeline, error) {
	c, err := d.compile(p)
	if err != nil {
		return nil, err
	}
	if err := c.warm(); err != nil {
		_ = c.Free()
		return nil, d.failed("compile a program", 0, err)
	}
	return c, nil
}

func (d *Device) compile(p *wire.Pipeline) (*pipeline, error) {
	const doing = "compile a program"
	if p.Bindings+1 > d.MaxBindings || p.PushBytes > d.MaxPushBytes || p.PushBytes < 4 || p.PushBytes%4 != 0 {
		return nil, gpuerr.New(gpuerr.LaunchLimit, "%s: %d bindings, of at most %d, and %d bytes of push constants, of at most %d",
			doing, p.Bindings+1, d.MaxBindings, p.PushBytes, d.MaxPushBytes)
	}
	widths, err := constantWidths(p.Module)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}

	c := &pipeline{d: d, bindings: int(p.Bindings), pushBytes: int(p.PushBytes)}
	if err := c.make(p, widths); err != nil {
		_ = c.Free()
		return nil, d.failed(doing, uint64(len(p.Module)), err)
	}
	return c, nil
}

func (c *pipeline) make(p *wire.Pipeline, widths map[uint32]uint32) error {
	d := c.d
	set, err := d.setLayout(c.bindings + 1)
	if err != nil {
		return err
	}
	push := vk.PushConstantRange{Stages: vk.ShaderStageCompute, Size: p.PushBytes}
	pci := vk.PipelineLayoutCreateInfo{
		Head: vk.Head{SType: vk.TypePipelineLayoutCreate}, Sets: 1, Layout: unsafe.Pointer(&set),
		Ranges: 1, Range: unsafe.Pointer(&push),
	}
	if c.layout, err = d.create("PipelineLayout", unsafe.Pointer(&pci)); err != nil {
		return err
	}

	words := make([]uint32, len(p.Module)/4) // the driver wants them aligned
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(p.Module[4*i:])
	}
	mci := vk.ShaderModuleCreateInfo{Head: vk.Head{SType: vk.TypeShaderModuleCreateInfo}, Size: uint64(4 * len(words)), Code: unsafe.Pointer(unsafe.SliceData(words))}
	module, err := d.create("ShaderModule", unsafe.Pointer(&mci))
	if err != nil {
		return err
	}
	defer d.destroy("vkDestroyShaderModule", module)

	entries, data := specialise(p.Constants, widths)
	spec := vk.SpecializationInfo{
		Count: uint32(len(entries)), Entries: unsafe.Pointer(unsafe.SliceData(entries)),
		Size: uint64(len(data)), Data: unsafe.Pointer(unsafe.SliceData(data)),
	}
	ci := vk.ComputePipelineCreateInfo{
		Head: vk.Head{SType: vk.TypeComputePipelineCreate},
		Stage: vk.ShaderStageCreateInfo{
			Head: vk.Head{SType: vk.TypeShaderStageCreateInfo}, Stage: vk.ShaderStageCompute, Module: module,
			Name: vk.CString(p.Entry), Spec: unsafe.Pointer(&spec),
		},
		Layout: c.layout,
	}
	return d.Do("vkCreateComputePipelines", d.Dev, 0, 1, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&c.handle)))
}

// Free implements host.Pipeline.
func (c *pipeline) Free() error {
	c.d.destroy("vkDestroyPipeline", c.handle)
	c.d.destroy("vkDestroyPipelineLayout", c.layout)
	c.handle, c.layout = 0, 0
	return nil
}

// specialise lays out the values of constants.
func specialise(constants []program.Constant, widths map[uint32]uint32) ([]vk.SpecializationMapEntry, []byte) {
	var entries []vk.SpecializationMapEntry
	data := make([]byte, 0, 8*len(constants)+8)
	for _, k := range constants {
		if width := widths[k.ID]; width != 0 {
			entries = append(entries, vk.SpecializationMapEntry{ID: k.ID, Off: uint32(len(data)), Size: uint64(width)})
			data = binary.LittleEndian.AppendUint64(data, k.Value)
		}
	}
	return entries, data[:len(data):cap(data)]
}

// constantWidths are the sizes of a module's specialisation constants in bytes, by SpecId.
func constantWidths(module []byte) (map[uint32]uint32, error) {
	m, err := spirv.Parse(module)
	if err != nil {
		return nil, err
	}

	widths := map[uint32]uint32{}
	for i := range m.Globals {
		in := &m.Globals[i]
		switch in.Op {
		case spirv.OpSpecConstant, spirv.OpSpecConstantTrue, spirv.OpSpecConstantFalse:
		default:
			continue
		}
		id, ok := m.Decoration(in.Result, spirv.DecorationSpecId)
		if !ok || len(id.Args) < 3 {
			continue
		}
		width := uint32(4) // of a VkBool32
		if t := m.Def(in.Type); in.Op == spirv.OpSpecConstant && t != nil && len(t.Args) > 0 {
			width = t.Args[0] / 8
		}
		widths[id.Args[2]] = width
	}
	return widths, nil
}

// setLayout is that of n storage buffers.
func (d *Device) setLayout(n int) (vk.Handle, error) {
	if d.layouts[n] != 0 {
		return d.layouts[n], nil
	}

	binds := make([]vk.DescriptorSetLayoutBinding, n)
	for i := range binds {
		binds[i] = vk.DescriptorSetLayoutBinding{Binding: uint32(i), Type: vk.DescriptorStorageBuffer, Count: 1, Stages: vk.ShaderStageCompute}
	}
	ci := vk.DescriptorSetLayoutCreateInfo{
		Head: vk.Head{SType: vk.TypeDescriptorLayoutCreate}, Count: uint32(n), Bindings: unsafe.Pointer(unsafe.SliceData(binds)),
	}
	h, err := d.kept("DescriptorSetLayout", unsafe.Pointer(&ci))
	d.layouts[n] = h
	return h, err
}
