package verify

// A Code is the stable name of a finding.
type Code = string

// Findings of programs outside the profile: perhaps valid, but not supported.
const (
	CodeCapability  Code = "SPV-2001"
	CodeExtension   Code = "SPV-2002"
	CodeImport      Code = "SPV-2003"
	CodeModel       Code = "SPV-2004"
	CodeEntryPoints Code = "SPV-2005"
	CodeMode        Code = "SPV-2006"
	CodeOpcode      Code = "SPV-2010"
	CodeType        Code = "SPV-2011"
	CodeClass       Code = "SPV-2012"
	CodeDecoration  Code = "SPV-2013"
	CodeBuiltIn     Code = "SPV-2014"
	CodeSmall       Code = "SPV-2015"
	CodeExtended    Code = "SPV-2016"
	CodePointer     Code = "SPV-2017"
	CodeScope       Code = "SPV-2018"
	CodeMemory      Code = "SPV-2019"
	CodeBinding     Code = "SPV-2020"
	CodeInline      Code = "SPV-2021"
	CodeBlock       Code = "SPV-2022"
	CodeSpecID      Code = "SPV-2023"
	CodeSpecOp      Code = "SPV-2024"
	CodeDeep        Code = "SPV-2025"
	CodeLarge       Code = "SPV-2026"
	CodeExpansion   Code = "SPV-2027"
	CodeDead        Code = "SPV-2028"
)

// Findings of manifests that contradict the module.
const (
	CodeManifestEntry     Code = "SPV-2100"
	CodeManifestBindings  Code = "SPV-2101"
	CodeManifestInline    Code = "SPV-2102"
	CodeManifestBlock     Code = "SPV-2103"
	CodeManifestShared    Code = "SPV-2104"
	CodeManifestFeatures  Code = "SPV-2105"
	CodeManifestConstants Code = "SPV-2106"
)

// Findings of invalid modules.
const (
	CodeID          Code = "SPV-3000"
	CodeUse         Code = "SPV-3001"
	CodeDeclaration Code = "SPV-3002"
	CodeConstant    Code = "SPV-3003"
	CodeResult      Code = "SPV-3004"
	CodeOperand     Code = "SPV-3005"
	CodeDecorated   Code = "SPV-3006"
	CodeNeeds       Code = "SPV-3007"
	CodeInterface   Code = "SPV-3008"
	CodeNoMode      Code = "SPV-3009"
	CodeLayout      Code = "SPV-3010"
	CodeVariable    Code = "SPV-3011"
	CodeChain       Code = "SPV-3012"
	CodeAccess      Code = "SPV-3013"
	CodeFunction    Code = "SPV-3014"
	CodeCall        Code = "SPV-3015"
	CodeReturn      Code = "SPV-3016"
	CodePhi         Code = "SPV-3020"
	CodeBranch      Code = "SPV-3021"
	CodeNoMerge     Code = "SPV-3022"
	CodeMerge       Code = "SPV-3023"
	CodeLoop        Code = "SPV-3024"
	CodeExit        Code = "SPV-3025"
	CodeSwitch      Code = "SPV-3026"
	CodeOrder       Code = "SPV-3027"
	CodeSemantics   Code = "SPV-3030"
)

// Findings with a name in the Abstract Device Machine (docs/adm.md).
const (
	CodeHostMemory    Code = "E-GPU-4001"
	CodeElement       Code = "E-GPU-4005"
	CodeRecursion     Code = "E-GPU-4010"
	CodeDispatch      Code = "E-GPU-4011"
	CodeStack         Code = "E-GPU-4012"
	CodeNotVoid       Code = "E-GPU-4013"
	CodeHeap          Code = "E-GPU-4014"
	CodePanic         Code = "E-GPU-4016"
	CodeDimensions    Code = "E-GPU-4020"
	CodeCapture       Code = "E-GPU-4021"
	CodeSharedPlace   Code = "E-GPU-4030"
	CodeSharedDynamic Code = "E-GPU-4031"
	CodeSharedSize    Code = "E-GPU-4032"
	CodeAtomicPointee Code = "E-GPU-4041"
	CodeShuffle       Code = "E-GPU-4050"
	CodeAtomicMemory  Code = "E-GPU-4060"
	CodeAtomicType    Code = "E-GPU-4061"

	WarnShared     Code = "W-GPU-4033"
	WarnBarrier    Code = "W-GPU-4040"
	WarnShuffle    Code = "W-GPU-4051"
	WarnSystem     Code = "W-GPU-4062"
	WarnStarvation Code = "W-GPU-4070"
)

// Codes has every code of this package with its meaning, in the words of
// docs/program-profile.md and docs/adm.md.
var Codes = map[Code]string{
	CodeCapability:  "a capability outside the profile",
	CodeExtension:   "an extension outside the profile",
	CodeImport:      "an extended instruction set outside the profile",
	CodeModel:       "an addressing or memory model outside the profile",
	CodeEntryPoints: "no entry point of the model GLCompute, or none of the manifest's name",
	CodeMode:        "an execution mode outside the profile",
	CodeOpcode:      "an instruction outside the profile",
	CodeType:        "a type outside the profile",
	CodeClass:       "a storage class outside the profile",
	CodeDecoration:  "a decoration outside the profile",
	CodeBuiltIn:     "a built-in outside the profile",
	CodeSmall:       "8 or 16 bits where the instruction has no such form",
	CodeExtended:    "an extended instruction outside the profile",
	CodePointer:     "a pointer from something other than a variable, a parameter, an access chain or a copy of one",
	CodeScope:       "a scope or group operation outside the profile",
	CodeMemory:      "memory operands or function control outside the profile",
	CodeBinding:     "a buffer without a number below the limit, or an array of buffers without a length, or as a whole",
	CodeInline:      "a second block of push constants, or one above the limit",
	CodeBlock:       "a workgroup of no lanes or above the limit",
	CodeSpecID:      "something that depends on a constant of the launch, and may not",
	CodeSpecOp:      "an OpSpecConstantOp that has no value, or whose operation is outside the profile",
	CodeDeep:        "types or constructs nested deeper than the limit",
	CodeLarge:       "a type or value larger than the limit",
	CodeExpansion:   "a program larger than the limit once its calls are expanded",
	CodeDead:        "a block that nothing leads to, and that branches both ways, back, or to a continue target",

	CodeManifestEntry:     "the manifest's entry is not the module's",
	CodeManifestBindings:  "the manifest's bindings are not the module's",
	CodeManifestInline:    "the manifest's inline fields are not those of the module's push constants",
	CodeManifestBlock:     "the manifest's block is not the module's",
	CodeManifestShared:    "the manifest's sharedBytes is not what the module has",
	CodeManifestFeatures:  "the module needs a feature that the manifest leaves out",
	CodeManifestConstants: "the manifest sets a specialisation constant that the module does not have, or to a value that its type has not",

	CodeID:          "an id that nothing defines, or of another sort than its place needs",
	CodeUse:         "an id used before or beside its definition, which does not dominate the use",
	CodeDeclaration: "an ill-formed or repeated type",
	CodeConstant:    "an ill-formed constant",
	CodeResult:      "a result type that the instruction cannot have",
	CodeOperand:     "an operand of the wrong type or value",
	CodeDecorated:   "a decoration where it has no meaning, or twice",
	CodeNeeds:       "something whose capability, extension or version the module does not declare",
	CodeInterface:   "an ill-formed entry point or interface",
	CodeNoMode:      "no workgroup size, or two",
	CodeLayout:      "a block without explicit layout, or with one that overlaps, is misaligned or too large",
	CodeVariable:    "an ill-formed variable",
	CodeChain:       "an ill-formed access chain",
	CodeAccess:      "a load, store or atomic that its memory does not allow",
	CodeFunction:    "an ill-formed function",
	CodeCall:        "a call that is not of the callee's type",
	CodeReturn:      "a return that is not of the function's type",
	CodePhi:         "an OpPhi that is not one value for each predecessor",
	CodeBranch:      "a branch to the entry block, or an ill-formed one",
	CodeNoMerge:     "a branch both ways inside a construct, without a merge instruction",
	CodeMerge:       "an ill-formed merge instruction",
	CodeLoop:        "a branch back that is not the one of a loop's continue construct",
	CodeExit:        "a branch out of a construct that is neither to its merge block nor a break or continue",
	CodeSwitch:      "an ill-formed switch, or a fall-through other than into the next case",
	CodeOrder:       "blocks or instructions in an order that is not allowed",
	CodeSemantics:   "memory semantics that the instruction cannot have",

	CodeHostMemory:    "access to memory that is not the device's: an address instead of a binding",
	CodeElement:       "a buffer element without a layout of its own: a pointer or bool",
	CodeRecursion:     "a function that calls itself, directly or not",
	CodeDispatch:      "a call through a value: function pointers and dynamic dispatch",
	CodeStack:         "more private memory along the deepest path of calls than the limit",
	CodeNotVoid:       "a kernel that returns a value",
	CodeHeap:          "memory allocated while the kernel runs",
	CodePanic:         "an invocation ended from within: kill, terminate, unwind",
	CodeDimensions:    "a workgroup size that is not of 32-bit integers",
	CodeCapture:       "an inline argument of a type that kernels cannot be handed: a pointer or bool",
	CodeSharedPlace:   "shared memory declared inside a function, where control flow may diverge",
	CodeSharedDynamic: "more than one dynamic array in shared memory",
	CodeSharedSize:    "more static shared memory than the limit",
	CodeAtomicPointee: "an atomic operation on something that is not a scalar of its type",
	CodeShuffle:       "a group operation on something that is not a register: a struct or an array",
	CodeAtomicMemory:  "an atomic operation on memory that is neither global nor shared",
	CodeAtomicType:    "an atomic operation on a type without one, such as 8 and 16 bits",

	WarnShared:     "shared memory is read after a write without a barrier between",
	WarnBarrier:    "a barrier in control flow that may diverge",
	WarnShuffle:    "a shuffle whose source lane depends on a value at run time",
	WarnSystem:     "an atomic operation of system scope",
	WarnStarvation: "an endless loop in control flow that may diverge",
}
