package program

// Manifest is the claim of a bundle's maker about a module, with facts that a
// module cannot express. Its form in a bundle is JSON. A missing field is taken
// from the module.
type Manifest struct {
	Name     string    `json:"name,omitempty"`  // [a-z0-9_]{1,64}
	Entry    string    `json:"entry,omitempty"` // of OpEntryPoint; may be left out if there is one only
	Bindings []Binding `json:"bindings,omitempty"`
	Inline   []Field   `json:"inline,omitempty"`
	// Block is the workgroup. It must be the module's; if the module takes it from
	// specialisation constants, it is the default.
	Block       []uint32  `json:"block,omitempty"` // x, y, z; y and z may be left out
	SharedBytes *uint32   `json:"sharedBytes,omitempty"`
	Features    []Feature `json:"features,omitempty"`
	// Constants are values of specialisation constants by SpecId. A value of one that
	// the workgroup's size is made of is the default.
	Constants []Constant `json:"constants,omitempty"`
	// DynamicShared is the SpecId of the length of the one dynamic array in shared
	// memory, which the launch sets. Without it this is SpecId 3, where that is the
	// length of one shared array, of no other array, and not among Constants.
	DynamicShared *uint32    `json:"dynamicShared,omitempty"`
	Grid          *Grid      `json:"grid,omitempty"`
	Tolerance     *Tolerance `json:"tolerance,omitempty"`
	Tags          []string   `json:"tags,omitempty"` // "cpu", "gpu": what a variant is made for
}

// Binding is a storage buffer of the program: set 0, its index is the binding.
type Binding struct {
	Name   string `json:"name"`
	Access Access `json:"access"`         // "read", "write", "readWrite"
	Type   Type   `json:"type,omitempty"` // of its elements, where they are of one scalar type
}

// Field is one scalar of the push constant block.
type Field struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	Off  uint32 `json:"offset"` // bytes
}

// Type is a scalar type: "f32", "u32", "i32", "f16", "u16", "i16", "u8", "i8",
// "f64", "u64", "i64"; "" if there is no single one.
type Type string

// Constant is the value of a specialisation constant: the bits of its type.
type Constant struct {
	ID    uint32 `json:"id"`
	Value uint64 `json:"value"`
}

// Feature is an optional feature of devices.
type Feature string

// The features of the profile.
const (
	FeatureSubgroupVote    Feature = "subgroupVote"    // all, any, elect
	FeatureSubgroupBallot  Feature = "subgroupBallot"  // ballot, broadcast
	FeatureSubgroupShuffle Feature = "subgroupShuffle" // shuffle, xor, up, down
	FeatureSubgroupArith   Feature = "subgroupArithmetic"
	FeatureSubgroupCluster Feature = "subgroupClustered"
	FeatureSubgroupQuad    Feature = "subgroupQuad"
	FeatureDot             Feature = "integerDotProduct"
	FeatureF16Storage      Feature = "f16Storage" // 16-bit values in buffers
	FeatureI8Storage       Feature = "i8Storage"  // 8-bit values in buffers
	FeatureF64             Feature = "f64"
	FeatureI64             Feature = "i64"
	FeatureI64Atomics      Feature = "i64Atomics"
	FeatureF32Atomics      Feature = "f32Atomics" // add, exchange
	FeatureF16             Feature = "f16"        // arithmetic on 16-bit floats
	FeatureI8              Feature = "i8"         // arithmetic on 8-bit integers
	FeatureI16             Feature = "i16"        // arithmetic on 16-bit integers
)

// Grid is the launch that covers the bindings once: ceil(elements of Cover /
// PerGroup) workgroups in x, at least 1. The zero Grid is one element of the
// shortest binding per lane.
type Grid struct {
	// Cover is the name of the binding that determines the number of elements; ""
	// is the shortest.
	Cover string `json:"cover,omitempty"`
	// ElementBytes is the size of an element; 0 is 4.
	ElementBytes uint32 `json:"elementBytes,omitempty"`
	// PerGroup is the number of elements of one workgroup; 0: one for each lane.
	PerGroup uint32 `json:"perGroup,omitempty"`
	// Groups, if not 0, is the number of workgroups, whatever the bindings.
	Groups uint32 `json:"groups,omitempty"`
}

// Tolerance is the allowed distance of two right results: |a-b| ≤ Abs + Rel·|b|.
// The zero Tolerance is bit for bit.
type Tolerance struct {
	Abs float64 `json:"abs,omitempty"`
	Rel float64 `json:"rel,omitempty"`
}
