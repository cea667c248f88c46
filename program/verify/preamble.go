package verify

import (
	"strings"

	"capgpu/program"
	"capgpu/program/spirv"
)

// capability is the requirement of a capability of the profile.
type capability struct {
	version   uint32 // of the module, or
	extension string // this one
	implies   []spirv.Capability
}

const version13, version14, version15, version16 = 0x00010300, 0x00010400, 0x00010500, 0x00010600

var capabilities = map[spirv.Capability]capability{
	spirv.CapabilityMatrix:  {},
	spirv.CapabilityShader:  {implies: []spirv.Capability{spirv.CapabilityMatrix}},
	spirv.CapabilityFloat16: {}, spirv.CapabilityFloat64: {},
	spirv.CapabilityInt8: {}, spirv.CapabilityInt16: {}, spirv.CapabilityInt64: {},
	spirv.CapabilityInt64Atomics:                         {implies: []spirv.Capability{spirv.CapabilityInt64}},
	spirv.CapabilityGroupNonUniform:                      {version: version13},
	spirv.CapabilityGroupNonUniformVote:                  {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformArithmetic:            {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformBallot:                {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformShuffle:               {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformShuffleRelative:       {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformClustered:             {version: version13, implies: group},
	spirv.CapabilityGroupNonUniformQuad:                  {version: version13, implies: group},
	spirv.CapabilityStorageBuffer16BitAccess:             {version: version13, extension: ext16},
	spirv.CapabilityUniformAndStorageBuffer16BitAccess:   {version: version13, extension: ext16, implies: []spirv.Capability{spirv.CapabilityStorageBuffer16BitAccess}},
	spirv.CapabilityStorageBuffer8BitAccess:              {version: version15, extension: ext8},
	spirv.CapabilityUniformAndStorageBuffer8BitAccess:    {version: version15, extension: ext8, implies: []spirv.Capability{spirv.CapabilityStorageBuffer8BitAccess}},
	spirv.CapabilityStoragePushConstant16:                {version: version13, extension: ext16},
	spirv.CapabilityStorageInputOutput16:                 {version: version13, extension: ext16},
	spirv.CapabilityStoragePushConstant8:                 {version: version15, extension: ext8},
	spirv.CapabilityVulkanMemoryModel:                    {version: version15, extension: extModel},
	spirv.CapabilityVulkanMemoryModelDeviceScope:         {version: version15, extension: extModel},
	spirv.CapabilityAtomicFloat32AddEXT:                  {extension: extFAdd},
	spirv.CapabilityVariablePointersStorageBuffer:        {version: version13, extension: extPointers},
	spirv.CapabilityVariablePointers:                     {version: version13, extension: extPointers, implies: []spirv.Capability{spirv.CapabilityVariablePointersStorageBuffer}},
	spirv.CapabilityStorageBufferArrayDynamicIndexing:    {},
	spirv.CapabilityUniformBufferArrayDynamicIndexing:    {},
	spirv.CapabilityShaderNonUniform:                     {version: version15, extension: extIndexing},
	spirv.CapabilityStorageBufferArrayNonUniformIndexing: {version: version15, extension: extIndexing, implies: []spirv.Capability{spirv.CapabilityShaderNonUniform}},
	spirv.CapabilityUniformBufferArrayNonUniformIndexing: {version: version15, extension: extIndexing, implies: []spirv.Capability{spirv.CapabilityShaderNonUniform}},
	spirv.CapabilityDotProduct:                           {version: version16, extension: extDot},
	spirv.CapabilityDotProductInputAll:                   {version: version16, extension: extDot},
	spirv.CapabilityDotProductInput4x8Bit:                {version: version16, extension: extDot, implies: []spirv.Capability{spirv.CapabilityInt8}},
	spirv.CapabilityDotProductInput4x8BitPacked:          {version: version16, extension: extDot},
	spirv.CapabilityDenormPreserve:                       {version: version14, extension: extFloats},
	spirv.CapabilitySignedZeroInfNanPreserve:             {version: version14, extension: extFloats},
	spirv.CapabilityRoundingModeRTE:                      {version: version14, extension: extFloats},
}

var group = []spirv.Capability{spirv.CapabilityGroupNonUniform}

const (
	extStorage  = "SPV_KHR_storage_buffer_storage_class"
	ext16       = "SPV_KHR_16bit_storage"
	ext8        = "SPV_KHR_8bit_storage"
	extModel    = "SPV_KHR_vulkan_memory_model"
	extFAdd     = "SPV_EXT_shader_atomic_float_add"
	extNothing  = "SPV_KHR_non_semantic_info"
	extFloats   = "SPV_KHR_float_controls"
	extDot      = "SPV_KHR_integer_dot_product"
	extIndexing = "SPV_EXT_descriptor_indexing"
	extPointers = "SPV_KHR_variable_pointers"
)

var extensions = map[string]bool{
	extStorage: true, ext16: true, ext8: true, extModel: true, extFAdd: true, extNothing: true, extPointers: true, extDot: true, extIndexing: true,
	"SPV_GOOGLE_decorate_string": true, "SPV_GOOGLE_hlsl_functionality1": true, "SPV_GOOGLE_user_type": true,
	"SPV_KHR_no_integer_wrap_decoration": true, "SPV_KHR_subgroup_uniform_control_flow": true, extFloats: true,
}

// foreign are capabilities that have a code of the Abstract Device Machine.
var foreign = map[spirv.Capability]Code{
	spirv.CapabilityAddresses:                      CodeHostMemory,
	spirv.CapabilityPhysicalStorageBufferAddresses: CodeHostMemory,
	spirv.CapabilityFunctionPointersINTEL:          CodeDispatch,
	spirv.CapabilityIndirectReferencesINTEL:        CodeDispatch,
	spirv.CapabilityVariableLengthArrayINTEL:       CodeHeap,
	spirv.CapabilityAtomicFloat16AddEXT:            CodeAtomicType,
	spirv.CapabilityAtomicFloat64AddEXT:            CodeAtomicType,
	spirv.CapabilityAtomicFloat16MinMaxEXT:         CodeAtomicType,
	spirv.CapabilityAtomicFloat32MinMaxEXT:         CodeAtomicType,
	spirv.CapabilityAtomicFloat64MinMaxEXT:         CodeAtomicType,
}

// preamble checks the sections before names and types.
func (v *verifier) preamble() *program.Refusal {
	m := v.m
	v.exts = make(map[string]bool, 4)
	for i := range m.Extensions {
		in := &m.Extensions[i]
		name, _ := spirv.Text(in.Args)
		if !extensions[name] {
			return v.refuse(CodeExtension, in, "extension %.80q is outside the profile", name)
		}
		v.exts[name] = true
	}

	v.caps = make(map[spirv.Capability]bool, 8)
	for i := range m.Capabilities {
		if r := v.capability(&m.Capabilities[i]); r != nil {
			return r
		}
	}

	for i := range m.Imports {
		in := &m.Imports[i]
		v.ids[in.Result].what = isImport
		switch name, _ := spirv.Text(in.Args); {
		case name == "GLSL.std.450" && v.glsl != 0:
			return v.refuse(CodeImport, in, "%s is imported twice", name)
		case name == "GLSL.std.450":
			v.glsl = in.Result
		case strings.HasPrefix(name, "NonSemantic."):
			if m.Version < version16 && !v.exts[extNothing] {
				return v.refuse(CodeNeeds, in, "%.80q needs extension %s", name, extNothing)
			}
		default:
			return v.refuse(CodeImport, in, "extended instruction set %.80q is outside the profile", name)
		}
	}

	return v.model()
}

func (v *verifier) capability(in *spirv.Inst) *program.Refusal {
	c := spirv.Capability(in.Arg(0))
	rule, ok := capabilities[c]
	if !ok {
		code := foreign[c]
		if code == "" {
			code = CodeCapability
		}
		return v.refuse(code, in, "capability %v is outside the profile", c)
	}

	if newer := rule.version > v.m.Version; newer && rule.extension == "" {
		return v.refuse(CodeNeeds, in, "capability %v needs SPIR-V %d.%d", c, rule.version>>16, rule.version>>8&0xFF)
	} else if (newer || rule.version == 0) && rule.extension != "" && !v.exts[rule.extension] {
		return v.refuse(CodeNeeds, in, "capability %v needs extension %s", c, rule.extension)
	}

	v.caps[c] = true
	for _, other := range rule.implies {
		v.caps[other] = true
	}

	return nil
}

func (v *verifier) model() *program.Refusal {
	in := &v.m.MemoryModel
	if !v.caps[spirv.CapabilityShader] {
		return v.refuse(CodeNeeds, in, "capability Shader is not declared")
	}

	addressing, memory := spirv.AddressingModel(in.Arg(0)), spirv.MemoryModel(in.Arg(1))
	switch {
	case addressing == spirv.AddressingModelPhysicalStorageBuffer64:
		return v.refuse(CodeHostMemory, in, "physical addresses: memory is reached by bindings only")
	case addressing != spirv.AddressingModelLogical:
		return v.refuse(CodeModel, in, "addressing model %v; the profile has Logical", addressing)
	case memory == spirv.MemoryModelVulkan:
		if v.vulkan = true; !v.caps[spirv.CapabilityVulkanMemoryModel] {
			return v.refuse(CodeNeeds, in, "memory model Vulkan needs capability VulkanMemoryModel")
		}
	case memory != spirv.MemoryModelGLSL450:
		return v.refuse(CodeModel, in, "memory model %v; the profile has GLSL450 and Vulkan", memory)
	case v.caps[spirv.CapabilityVulkanMemoryModel]:
		return v.refuse(CodeModel, in, "capability VulkanMemoryModel with memory model GLSL450")
	}

	return v.chooseEntry()
}

// chooseEntry takes the entry point that the manifest names, or else the first one of
// the model GLCompute.
func (v *verifier) chooseEntry() *program.Refusal {
	all := v.m.EntryPoints
	for i := range all {
		e := &all[i]
		name, _ := spirv.Text(e.Args[2:])
		if spirv.ExecutionModel(e.Arg(0)) != spirv.ExecutionModelGLCompute || len(all) > 1 && v.manifest.Entry != "" && v.manifest.Entry != name {
			continue
		}
		if v.entry != nil {
			other, _ := spirv.Text(v.entry.Args[2:])
			if other == name {
				return v.refuse(CodeInterface, e, "a second entry point %.80q", name)
			}
			continue
		}
		v.entry = e
	}

	switch {
	case v.entry != nil:
		return nil
	case len(all) == 0:
		return v.refuse(CodeEntryPoints, &v.m.MemoryModel, "no entry point")
	case v.manifest.Entry != "":
		return v.refuse(CodeManifestEntry, &all[0], "the manifest's entry is %.80q, and none of %d entry points of the module", v.manifest.Entry, len(all))
	}
	return v.refuse(CodeEntryPoints, &all[0], "an entry point of the model %v; the profile has GLCompute", spirv.ExecutionModel(all[0].Arg(0)))
}
