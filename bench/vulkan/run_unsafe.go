package vulkan

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"capgpu/engine/vk"
)

// launch is one job in progress; undo destroys its objects, last first.
type launch struct {
	*device
	job     *Job
	undo    []func()
	buffers []boundBuffer
}

type boundBuffer struct {
	binding int
	handle  vk.Handle
	memory  []byte // mapped
	size    int
}

// run does a job and returns its bindings afterwards. After ErrTimeout the kernel
// still runs: nothing was destroyed, and the process must end.
func (d *device) run(j *Job) (out [][]byte, err error) {
	l := &launch{device: d, job: j}
	defer func() {
		if errors.Is(err, ErrTimeout) {
			return
		}
		for i := len(l.undo) - 1; i >= 0; i-- {
			l.undo[i]()
		}
	}()

	if len(j.SPIRV) == 0 || len(j.SPIRV)%4 != 0 {
		return nil, errors.New("a module is a whole number of words")
	}
	if len(j.Inline)%4 != 0 || uint32(len(j.Inline)) > d.info.InlineBytes {
		return nil, fmt.Errorf("%d bytes of push constants; the device takes %d, in fours", len(j.Inline), d.info.InlineBytes)
	}

	for _, inline := range j.More {
		if len(inline) != len(j.Inline) {
			return nil, fmt.Errorf("%d bytes of push constants beside %d", len(inline), len(j.Inline))
		}
	}

	for i, b := range j.Bindings {
		if b == nil {
			continue
		}
		if err := l.buffer(i, b); err != nil {
			return nil, err
		}
	}

	b, err := l.build()
	if err != nil {
		return nil, err
	}

	set, err := l.descriptors(b.set)
	if err != nil {
		return nil, err
	}
	if err := l.dispatch(b.layout, b.pipeline, set); err != nil {
		return nil, err
	}

	out = make([][]byte, len(j.Bindings))
	for _, b := range l.buffers {
		out[b.binding] = append([]byte{}, b.memory[:b.size]...)
	}

	return out, nil
}

// create calls a vkCreate… that makes one object of the device, and arranges for
// its vkDestroy….
func (l *launch) create(what string, info unsafe.Pointer) (vk.Handle, error) {
	var h vk.Handle
	if err := l.Do("vkCreate"+what, l.Dev, uintptr(info), 0, uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	l.destroy("vkDestroy"+what, h)
	return h, nil
}

func (l *launch) destroy(call string, h vk.Handle) {
	l.undo = append(l.undo, func() { _, _ = l.Call(call, l.Dev, uintptr(h), 0) })
}

// buffer makes a buffer with content, and zeros after it, because a driver's new
// memory contains old data.
func (l *launch) buffer(binding int, content []byte) error {
	if uint64(len(content)) > uint64(l.info.BindingBytes) {
		return fmt.Errorf("binding %d has %d bytes; the device takes %d", binding, len(content), l.info.BindingBytes)
	}

	size := max(uint64(len(content)), 4)
	ci := vk.BufferCreateInfo{Head: vk.Head{SType: vk.TypeBufferCreateInfo}, Size: size, Usage: vk.BufferUsageStorage}
	h, err := l.create("Buffer", unsafe.Pointer(&ci))
	if err != nil {
		return err
	}

	var req vk.MemoryRequirements
	if _, err := l.Call("vkGetBufferMemoryRequirements", l.Dev, uintptr(h), uintptr(unsafe.Pointer(&req))); err != nil {
		return err
	}

	ai := vk.MemoryAllocateInfo{Head: vk.Head{SType: vk.TypeMemoryAllocateInfo}, Size: req.Size, MemoryType: ^uint32(0)}
	for i := uint32(0); i < l.device.memory.Types; i++ {
		if req.TypeBits&(1<<i) != 0 && l.device.memory.Type[i].Flags&vk.MemoryHostVisibleAndCoherent == vk.MemoryHostVisibleAndCoherent {
			ai.MemoryType = i
			break
		}
	}

	if ai.MemoryType == ^uint32(0) {
		return errors.New("the device has no memory that the host can see")
	}

	var mem vk.Handle
	if err := l.Do("vkAllocateMemory", l.Dev, uintptr(unsafe.Pointer(&ai)), 0, uintptr(unsafe.Pointer(&mem))); err != nil {
		return err
	}

	l.destroy("vkFreeMemory", mem)
	if err := l.Do("vkBindBufferMemory", l.Dev, uintptr(h), uintptr(mem), 0); err != nil {
		return err
	}

	var at unsafe.Pointer
	if err := l.Do("vkMapMemory", l.Dev, uintptr(mem), 0, uintptr(req.Size), 0, uintptr(unsafe.Pointer(&at))); err != nil {
		return err
	}

	mapped := unsafe.Slice((*byte)(at), req.Size)
	clear(mapped[copy(mapped, content):])
	l.buffers = append(l.buffers, boundBuffer{binding: binding, handle: h, memory: mapped, size: len(content)})
	return nil
}

// built is the part of a launch that other launches of its module can reuse: its
// layouts and pipeline.
type built struct{ set, layout, pipeline vk.Handle }

// keep bounds the kept pipelines of a device; each contains a compiled kernel.
const keep = 32

// build makes the layouts and pipeline, or finds those of an earlier launch. They
// are kept when everything else of the launch is destroyed.
func (l *launch) build() (built, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %q %v %d", len(l.job.SPIRV), l.job.Entry, l.job.Constants, len(l.job.Inline))
	for _, b := range l.buffers {
		_, _ = fmt.Fprintf(h, " %d", b.binding)
	}

	_, _ = h.Write(l.job.SPIRV)
	key := [32]byte(h.Sum(nil))
	if b, ok := l.kept[key]; ok {
		return b, nil
	}

	if len(l.kept) >= keep {
		for k, b := range l.kept {
			_, _ = l.Call("vkDestroyPipeline", l.Dev, uintptr(b.pipeline), 0)
			_, _ = l.Call("vkDestroyPipelineLayout", l.Dev, uintptr(b.layout), 0)
			_, _ = l.Call("vkDestroyDescriptorSetLayout", l.Dev, uintptr(b.set), 0)
			delete(l.kept, k)
		}
	}

	// Their destruction is registered like that of other objects, and withdrawn
	// once all are there.
	before := len(l.undo)
	set, layout, err := l.layout()
	if err != nil {
		return built{}, err
	}

	module, err := l.module()
	if err != nil {
		return built{}, err
	}

	pipeline, err := l.pipeline(layout, module)
	if err != nil {
		return built{}, err
	}

	l.undo = l.undo[:before]
	_, _ = l.Call("vkDestroyShaderModule", l.Dev, uintptr(module), 0)
	b := built{set, layout, pipeline}
	l.kept[key] = b
	return b, nil
}

func (l *launch) layout() (set, pipeline vk.Handle, err error) {
	var binds []vk.DescriptorSetLayoutBinding
	for _, b := range l.buffers {
		binds = append(binds, vk.DescriptorSetLayoutBinding{Binding: uint32(b.binding), Type: vk.DescriptorStorageBuffer, Count: 1, Stages: vk.ShaderStageCompute})
	}

	sci := vk.DescriptorSetLayoutCreateInfo{
		Head: vk.Head{SType: vk.TypeDescriptorLayoutCreate}, Count: uint32(len(binds)),
		Bindings: unsafe.Pointer(unsafe.SliceData(binds)),
	}

	if set, err = l.create("DescriptorSetLayout", unsafe.Pointer(&sci)); err != nil {
		return 0, 0, err
	}

	push := vk.PushConstantRange{Stages: vk.ShaderStageCompute, Size: uint32(len(l.job.Inline))}
	pci := vk.PipelineLayoutCreateInfo{
		Head: vk.Head{SType: vk.TypePipelineLayoutCreate}, Sets: 1, Layout: unsafe.Pointer(&set),
	}

	if push.Size > 0 {
		pci.Ranges, pci.Range = 1, unsafe.Pointer(&push)
	}

	pipeline, err = l.create("PipelineLayout", unsafe.Pointer(&pci))
	return set, pipeline, err
}

func (l *launch) module() (vk.Handle, error) {
	words := make([]uint32, len(l.job.SPIRV)/4) // the driver wants them aligned
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(l.job.SPIRV[4*i:])
	}
	mci := vk.ShaderModuleCreateInfo{Head: vk.Head{SType: vk.TypeShaderModuleCreateInfo}, Size: uint64(4 * len(words)), Code: unsafe.Pointer(&words[0])}
	return l.create("ShaderModule", unsafe.Pointer(&mci))
}

func (l *launch) pipeline(layout, module vk.Handle) (vk.Handle, error) {
	data := make([]byte, 8*len(l.job.Constants)+8)
	var entries []vk.SpecializationMapEntry
	for i, c := range l.job.Constants {
		binary.LittleEndian.PutUint64(data[8*i:], c.Value)
		entries = append(entries, vk.SpecializationMapEntry{ID: c.ID, Off: uint32(8 * i), Size: uint64(c.Bytes)})
	}

	spec := vk.SpecializationInfo{
		Count: uint32(len(entries)), Entries: unsafe.Pointer(unsafe.SliceData(entries)),
		Size: uint64(len(data)), Data: unsafe.Pointer(&data[0]),
	}

	entry := l.job.Entry
	if entry == "" {
		entry = "main"
	}

	ci := vk.ComputePipelineCreateInfo{
		Head: vk.Head{SType: vk.TypeComputePipelineCreate},
		Stage: vk.ShaderStageCreateInfo{
			Head: vk.Head{SType: vk.TypeShaderStageCreateInfo}, Stage: vk.ShaderStageCompute, Module: module,
			Name: vk.CString(entry), Spec: unsafe.Pointer(&spec),
		},
		Layout: layout,
	}

	var p vk.Handle
	if err := l.Do("vkCreateComputePipelines", l.Dev, 0, 1, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&p))); err != nil {
		return 0, err
	}

	l.destroy("vkDestroyPipeline", p)
	return p, nil
}

func (l *launch) descriptors(layout vk.Handle) (vk.Handle, error) {
	size := vk.DescriptorPoolSize{Type: vk.DescriptorStorageBuffer, Count: uint32(len(l.buffers) + 1)}
	pci := vk.DescriptorPoolCreateInfo{Head: vk.Head{SType: vk.TypeDescriptorPoolCreate}, MaxSets: 1, Sizes: 1, Size: unsafe.Pointer(&size)}
	pool, err := l.create("DescriptorPool", unsafe.Pointer(&pci))
	if err != nil {
		return 0, err
	}

	ai := vk.DescriptorSetAllocateInfo{Head: vk.Head{SType: vk.TypeDescriptorSetAllocate}, Pool: pool, Count: 1, Layouts: unsafe.Pointer(&layout)}
	var set vk.Handle
	if err := l.Do("vkAllocateDescriptorSets", l.Dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(&set))); err != nil {
		return 0, err
	}

	for _, b := range l.buffers {
		info := vk.DescriptorBufferInfo{Buffer: b.handle, Size: uint64(max(b.size, 4))}
		w := vk.WriteDescriptorSet{
			Head: vk.Head{SType: vk.TypeWriteDescriptorSet}, Set: set, Binding: uint32(b.binding),
			Count: 1, Type: vk.DescriptorStorageBuffer, Buffer: unsafe.Pointer(&info),
		}
		if _, err := l.Call("vkUpdateDescriptorSets", l.Dev, 1, uintptr(unsafe.Pointer(&w)), 0, 0); err != nil {
			return 0, err
		}
	}

	return set, nil
}

func (l *launch) dispatch(layout, pipeline, set vk.Handle) error {
	pci := vk.CommandPoolCreateInfo{Head: vk.Head{SType: vk.TypeCommandPoolCreate}, Family: l.family}
	pool, err := l.create("CommandPool", unsafe.Pointer(&pci))
	if err != nil {
		return err
	}

	ai := vk.CommandBufferAllocateInfo{Head: vk.Head{SType: vk.TypeCommandBufferAllocate}, Pool: pool, Count: 1}
	var cmd uintptr
	if err := l.Do("vkAllocateCommandBuffers", l.Dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(&cmd))); err != nil {
		return err
	}

	bi := vk.CommandBufferBeginInfo{Head: vk.Head{SType: vk.TypeCommandBufferBegin}, Flags: vk.CommandBufferOneTimeSubmit}
	if err := l.Do("vkBeginCommandBuffer", cmd, uintptr(unsafe.Pointer(&bi))); err != nil {
		return err
	}

	j := l.job
	if err := errors.Join(
		l.barrier(cmd, vk.StageHost, vk.AccessHostWrite, vk.StageComputeShader, vk.AccessShaderRead|vk.AccessShaderWrite),
		l.record("vkCmdBindPipeline", cmd, vk.BindPointCompute, uintptr(pipeline)),
		l.record("vkCmdBindDescriptorSets", cmd, vk.BindPointCompute, uintptr(layout), 0, 1, uintptr(unsafe.Pointer(&set)), 0, 0),
	); err != nil {
		return err
	}

	for k, inline := range append([][]byte{j.Inline}, j.More...) {
		if k > 0 {
			if err := l.barrier(cmd, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageComputeShader, vk.AccessShaderRead|vk.AccessShaderWrite); err != nil {
				return err
			}
		}
		if len(inline) > 0 {
			if err := l.record("vkCmdPushConstants", cmd, uintptr(layout), vk.ShaderStageCompute, 0, uintptr(len(inline)), uintptr(unsafe.Pointer(&inline[0]))); err != nil {
				return err
			}
		}
		if err := l.record("vkCmdDispatch", cmd, uintptr(j.Grid[0]), uintptr(j.Grid[1]), uintptr(j.Grid[2])); err != nil {
			return err
		}
	}

	if err := errors.Join(
		l.barrier(cmd, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageHost, vk.AccessHostRead),
		l.Do("vkEndCommandBuffer", cmd),
	); err != nil {
		return err
	}

	fci := vk.FenceCreateInfo{Head: vk.Head{SType: vk.TypeFenceCreateInfo}}
	fence, err := l.create("Fence", unsafe.Pointer(&fci))
	if err != nil {
		return err
	}

	si := vk.SubmitInfo{Head: vk.Head{SType: vk.TypeSubmitInfo}, Commands: 1, Command: unsafe.Pointer(&cmd)}
	if err := l.Do("vkQueueSubmit", l.queue, 1, uintptr(unsafe.Pointer(&si)), uintptr(fence)); err != nil {
		return err
	}

	r, err := l.Call("vkWaitForFences", l.Dev, 1, uintptr(unsafe.Pointer(&fence)), 1, uintptr(j.Timeout.Nanoseconds()))
	if err != nil {
		return err
	}

	switch code := int32(r); code {
	case 0:
		return nil
	case vk.Timeout:
		return ErrTimeout
	default:
		return &vk.Result{Call: "vkWaitForFences", Code: code}
	}
}

func (l *launch) barrier(cmd uintptr, srcStage, srcAccess, dstStage, dstAccess uint32) error {
	b := vk.MemoryBarrier{Head: vk.Head{SType: vk.TypeMemoryBarrier}, Src: srcAccess, Dst: dstAccess}
	return l.record("vkCmdPipelineBarrier", cmd, uintptr(srcStage), uintptr(dstStage), 0, 1, uintptr(unsafe.Pointer(&b)), 0, 0, 0, 0)
}

// record calls a vkCmd…, which returns nothing.
//
//go:uintptrescapes
func (l *launch) record(name string, args ...uintptr) error {
	_, err := l.Call(name, args...)
	return err
}
