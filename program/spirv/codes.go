package spirv

// Code is a stable code of a refusal by Parse, with its meaning.
type Code struct{ Code, Meaning string }

const (
	codeSize        = "SPV-1020"
	codeMagic       = "SPV-1021"
	codeVersion     = "SPV-1022"
	codeSchema      = "SPV-1023"
	codeBound       = "SPV-1024"
	codeWordCount   = "SPV-1025"
	codeOpcode      = "SPV-1026"
	codeMissing     = "SPV-1027"
	codeSurplus     = "SPV-1028"
	codeID          = "SPV-1029"
	codeTwice       = "SPV-1030"
	codeString      = "SPV-1031"
	codeUTF8        = "SPV-1032"
	codeEnumerant   = "SPV-1033"
	codeNumber      = "SPV-1034"
	codeSpecOp      = "SPV-1035"
	codeExtInst     = "SPV-1036"
	codeFile        = "SPV-1037"
	codeOrder       = "SPV-1040"
	codeMemoryModel = "SPV-1041"
	codePlace       = "SPV-1042"
	codeGroup       = "SPV-1043"
	codeDeclaration = "SPV-1044"
	codeFunctionEnd = "SPV-1045"
	codeBlockEnd    = "SPV-1046"
	codeMerge       = "SPV-1047"
	codeFirst       = "SPV-1048"
	codeTarget      = "SPV-1049"
	codeDecorations = "SPV-1050"
	codeMember      = "SPV-1051"
)

// Codes are all the codes of Parse; docs/program-profile.md has the same list.
var Codes = []Code{
	{codeSize, "the module is not whole words, has no header, or is larger than a bundle may be"},
	{codeMagic, "the module does not begin with the magic number of SPIR-V"},
	{codeVersion, "the version is not one of 1.0 to 1.6"},
	{codeSchema, "the reserved word of the header is not 0"},
	{codeBound, "the bound of the ids is 0, or out of proportion to the module"},
	{codeWordCount, "an instruction has no words, or reaches beyond the end of the module"},
	{codeOpcode, "the opcode is not in the specification"},
	{codeMissing, "an instruction lacks an operand"},
	{codeSurplus, "an instruction has more operands than the specification gives it"},
	{codeID, "an id is 0, or not below the bound"},
	{codeTwice, "an id is defined twice"},
	{codeString, "a string does not end within its instruction"},
	{codeUTF8, "a name, or another string that is not of a source, is not UTF-8"},
	{codeEnumerant, "a value is not one of its enumeration"},
	{codeNumber, "the type that a literal's width follows from is not a number of 8, 16, 32 or 64 bits, or comes later"},
	{codeSpecOp, "OpSpecConstantOp of an instruction that makes no constant"},
	{codeExtInst, "the set of an extended instruction is not imported, or GLSL.std.450 has no such instruction or gives it other operands"},
	{codeFile, "the file of an OpLine is not an OpString"},
	{codeOrder, "an instruction comes after a section that it has to precede"},
	{codeMemoryModel, "there is not exactly one OpMemoryModel"},
	{codePlace, "an instruction stands outside of a function or block, or inside of one, where it may not"},
	{codeGroup, "a decoration group that is none, or that is applied too often"},
	{codeDeclaration, "a function has no body: imports are not part of the profile"},
	{codeFunctionEnd, "a function does not end, or begins in another"},
	{codeBlockEnd, "a block does not end with a branch or return"},
	{codeMerge, "a merge instruction is not right before the branch that it is for"},
	{codeFirst, "an OpPhi is not first in its block, or an OpVariable not first in its function"},
	{codeTarget, "a branch or merge names a label that is not in the function"},
	{codeDecorations, "two decorations of one kind contradict each other"},
	{codeMember, "the index of a member is beyond what a structure can have"},
}
