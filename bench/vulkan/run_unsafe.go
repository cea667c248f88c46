package vulkan

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
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
	handle  handle
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
func (l *launch) create(what string, info unsafe.Pointer) (handle, error) {
	var h handle
	if err := l.do("vkCreate"+what, l.dev, uintptr(info), 0, uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	l.destroy("vkDestroy"+what, h)
	return h, nil
}

func (l *launch) destroy(call string, h handle) {
	l.undo = append(l.undo, func() { _, _ = l.call(call, l.dev, uintptr(h), 0) })
}

// buffer makes a buffer with content, and zeros after it, because a driver's new
// memory contains old data.
func (l *launch) buffer(binding int, content []byte) error {
	if uint64(len(content)) > uint64(l.info.BindingBytes) {
		return fmt.Errorf("binding %d has %d bytes; the device takes %d", binding, len(content), l.info.BindingBytes)
	}

	size := max(uint64(len(content)), 4)
	ci := bufferCreateInfo{head: head{sType: typeBufferCreateInfo}, size: size, usage: bufferUsageStorage}
	h, err := l.create("Buffer", unsafe.Pointer(&ci))
	if err != nil {
		return err
	}

	var req memoryRequirements
	if _, err := l.call("vkGetBufferMemoryRequirements", l.dev, uintptr(h), uintptr(unsafe.Pointer(&req))); err != nil {
		return err
	}

	ai := memoryAllocateInfo{head: head{sType: typeMemoryAllocateInfo}, size: req.size, typ: ^uint32(0)}
	for i := uint32(0); i < l.device.memory.types; i++ {
		if req.typeBits&(1<<i) != 0 && l.device.memory.typ[i].flags&memoryHostVisibleAndCoherent == memoryHostVisibleAndCoherent {
			ai.typ = i
			break
		}
	}

	if ai.typ == ^uint32(0) {
		return errors.New("the device has no memory that the host can see")
	}

	var mem handle
	if err := l.do("vkAllocateMemory", l.dev, uintptr(unsafe.Pointer(&ai)), 0, uintptr(unsafe.Pointer(&mem))); err != nil {
		return err
	}

	l.destroy("vkFreeMemory", mem)
	if err := l.do("vkBindBufferMemory", l.dev, uintptr(h), uintptr(mem), 0); err != nil {
		return err
	}

	var at unsafe.Pointer
	if err := l.do("vkMapMemory", l.dev, uintptr(mem), 0, uintptr(req.size), 0, uintptr(unsafe.Pointer(&at))); err != nil {
		return err
	}

	mapped := unsafe.Slice((*byte)(at), req.size)
	clear(mapped[copy(mapped, content):])
	l.buffers = append(l.buffers, boundBuffer{binding: binding, handle: h, memory: mapped, size: len(content)})
	return nil
}

// built is the part of a launch that other launches of its module can reuse: its
// layouts and pipeline.
type built struct{ set, layout, pipeline handle }

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
			_, _ = l.call("vkDestroyPipeline", l.dev, uintptr(b.pipeline), 0)
			_, _ = l.call("vkDestroyPipelineLayout", l.dev, uintptr(b.layout), 0)
			_, _ = l.call("vkDestroyDescriptorSetLayout", l.dev, uintptr(b.set), 0)
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
	_, _ = l.call("vkDestroyShaderModule", l.dev, uintptr(module), 0)
	b := built{set, layout, pipeline}
	l.kept[key] = b
	return b, nil
}

func (l *launch) layout() (set, pipeline handle, err error) {
	var binds []descriptorSetLayoutBinding
	for _, b := range l.buffers {
		binds = append(binds, descriptorSetLayoutBinding{binding: uint32(b.binding), typ: descriptorStorageBuffer, count: 1, stages: shaderStageCompute})
	}

	sci := descriptorSetLayoutCreateInfo{
		head: head{sType: typeDescriptorLayoutCreate}, count: uint32(len(binds)),
		bindings: unsafe.Pointer(unsafe.SliceData(binds)),
	}

	if set, err = l.create("DescriptorSetLayout", unsafe.Pointer(&sci)); err != nil {
		return 0, 0, err
	}

	push := pushConstantRange{stages: shaderStageCompute, size: uint32(len(l.job.Inline))}
	pci := pipelineLayoutCreateInfo{
		head: head{sType: typePipelineLayoutCreate}, sets: 1, layout: unsafe.Pointer(&set),
	}

	if push.size > 0 {
		pci.ranges, pci.rang = 1, unsafe.Pointer(&push)
	}

	pipeline, err = l.create("PipelineLayout", unsafe.Pointer(&pci))
	return set, pipeline, err
}

func (l *launch) module() (handle, error) {
	words := make([]uint32, len(l.job.SPIRV)/4) // the driver wants them aligned
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(l.job.SPIRV[4*i:])
	}
	mci := shaderModuleCreateInfo{head: head{sType: typeShaderModuleCreateInfo}, size: uint64(4 * len(words)), code: unsafe.Pointer(&words[0])}
	return l.create("ShaderModule", unsafe.Pointer(&mci))
}

func (l *launch) pipeline(layout, module handle) (handle, error) {
	data := make([]byte, 8*len(l.job.Constants)+8)
	var entries []specializationMapEntry
	for i, c := range l.job.Constants {
		binary.LittleEndian.PutUint64(data[8*i:], c.Value)
		entries = append(entries, specializationMapEntry{id: c.ID, off: uint32(8 * i), size: uint64(c.Bytes)})
	}

	spec := specializationInfo{
		count: uint32(len(entries)), entries: unsafe.Pointer(unsafe.SliceData(entries)),
		size: uint64(len(data)), data: unsafe.Pointer(&data[0]),
	}

	entry := l.job.Entry
	if entry == "" {
		entry = "main"
	}

	ci := computePipelineCreateInfo{
		head: head{sType: typeComputePipelineCreate},
		stage: shaderStageCreateInfo{
			head: head{sType: typeShaderStageCreateInfo}, stage: shaderStageCompute, module: module,
			name: cString(entry), spec: unsafe.Pointer(&spec),
		},
		layout: layout,
	}

	var p handle
	if err := l.do("vkCreateComputePipelines", l.dev, 0, 1, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&p))); err != nil {
		return 0, err
	}

	l.destroy("vkDestroyPipeline", p)
	return p, nil
}

func (l *launch) descriptors(layout handle) (handle, error) {
	size := descriptorPoolSize{typ: descriptorStorageBuffer, count: uint32(len(l.buffers) + 1)}
	pci := descriptorPoolCreateInfo{head: head{sType: typeDescriptorPoolCreate}, maxSets: 1, sizes: 1, size: unsafe.Pointer(&size)}
	pool, err := l.create("DescriptorPool", unsafe.Pointer(&pci))
	if err != nil {
		return 0, err
	}

	ai := descriptorSetAllocateInfo{head: head{sType: typeDescriptorSetAllocate}, pool: pool, count: 1, layouts: unsafe.Pointer(&layout)}
	var set handle
	if err := l.do("vkAllocateDescriptorSets", l.dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(&set))); err != nil {
		return 0, err
	}

	for _, b := range l.buffers {
		info := descriptorBufferInfo{buffer: b.handle, size: uint64(max(b.size, 4))}
		w := writeDescriptorSet{
			head: head{sType: typeWriteDescriptorSet}, set: set, binding: uint32(b.binding),
			count: 1, typ: descriptorStorageBuffer, buffer: unsafe.Pointer(&info),
		}
		if _, err := l.call("vkUpdateDescriptorSets", l.dev, 1, uintptr(unsafe.Pointer(&w)), 0, 0); err != nil {
			return 0, err
		}
	}

	return set, nil
}

func (l *launch) dispatch(layout, pipeline, set handle) error {
	pci := commandPoolCreateInfo{head: head{sType: typeCommandPoolCreate}, family: l.family}
	pool, err := l.create("CommandPool", unsafe.Pointer(&pci))
	if err != nil {
		return err
	}

	ai := commandBufferAllocateInfo{head: head{sType: typeCommandBufferAllocate}, pool: pool, count: 1}
	var cmd uintptr
	if err := l.do("vkAllocateCommandBuffers", l.dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(&cmd))); err != nil {
		return err
	}

	bi := commandBufferBeginInfo{head: head{sType: typeCommandBufferBegin}, flags: commandBufferOneTimeSubmit}
	if err := l.do("vkBeginCommandBuffer", cmd, uintptr(unsafe.Pointer(&bi))); err != nil {
		return err
	}

	j := l.job
	if err := errors.Join(
		l.barrier(cmd, stageHost, accessHostWrite, stageComputeShader, accessShaderRead|accessShaderWrite),
		l.record("vkCmdBindPipeline", cmd, bindPointCompute, uintptr(pipeline)),
		l.record("vkCmdBindDescriptorSets", cmd, bindPointCompute, uintptr(layout), 0, 1, uintptr(unsafe.Pointer(&set)), 0, 0),
	); err != nil {
		return err
	}

	for k, inline := range append([][]byte{j.Inline}, j.More...) {
		if k > 0 {
			if err := l.barrier(cmd, stageComputeShader, accessShaderWrite, stageComputeShader, accessShaderRead|accessShaderWrite); err != nil {
				return err
			}
		}
		if len(inline) > 0 {
			if err := l.record("vkCmdPushConstants", cmd, uintptr(layout), shaderStageCompute, 0, uintptr(len(inline)), uintptr(unsafe.Pointer(&inline[0]))); err != nil {
				return err
			}
		}
		if err := l.record("vkCmdDispatch", cmd, uintptr(j.Grid[0]), uintptr(j.Grid[1]), uintptr(j.Grid[2])); err != nil {
			return err
		}
	}

	if err := errors.Join(
		l.barrier(cmd, stageComputeShader, accessShaderWrite, stageHost, accessHostRead),
		l.do("vkEndCommandBuffer", cmd),
	); err != nil {
		return err
	}

	fci := fenceCreateInfo{head: head{sType: typeFenceCreateInfo}}
	fence, err := l.create("Fence", unsafe.Pointer(&fci))
	if err != nil {
		return err
	}

	si := submitInfo{head: head{sType: typeSubmitInfo}, commands: 1, command: unsafe.Pointer(&cmd)}
	if err := l.do("vkQueueSubmit", l.queue, 1, uintptr(unsafe.Pointer(&si)), uintptr(fence)); err != nil {
		return err
	}

	r, err := l.call("vkWaitForFences", l.dev, 1, uintptr(unsafe.Pointer(&fence)), 1, uintptr(j.Timeout.Nanoseconds()))
	if err != nil {
		return err
	}

	switch code := int32(r); code {
	case 0:
		return nil
	case resultTimeout:
		return ErrTimeout
	default:
		return &Result{Call: "vkWaitForFences", Code: code}
	}
}

func (l *launch) barrier(cmd uintptr, srcStage, srcAccess, dstStage, dstAccess uint32) error {
	b := memoryBarrier{head: head{sType: typeMemoryBarrier}, src: srcAccess, dst: dstAccess}
	return l.record("vkCmdPipelineBarrier", cmd, uintptr(srcStage), uintptr(dstStage), 0, 1, uintptr(unsafe.Pointer(&b)), 0, 0, 0, 0)
}

// record calls a vkCmd…, which returns nothing.
//
//go:uintptrescapes
func (l *launch) record(name string, args ...uintptr) error {
	_, err := l.call(name, args...)
	return err
}
