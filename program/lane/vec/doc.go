// Package vec has the inner loops of the lane engine: one operation on all lanes
// of a workgroup at once.
//
// A register is a slice with one element per lane: []uint32 for values of up to
// 32 bits, []uint64 for 64. Floats are their bits. A bool is 0 or ^0, and so is
// each lane of a mask. Integers of 8 and 16 bits are kept zero-extended, a half
// as its 16 bits.
//
// All functions take slices of one length, any length from 0 on, and work on the
// shortest where they differ. The destination may be one of the sources; other
// overlap is not allowed. Nothing is allocated, nothing panics on any value of a
// lane; a fault of client memory does (see below).
//
// # Which operation
//
// Unary, Binary, GLSL1 and so on return the function of an instruction, so that a
// compiler of programs needs no table of its own. The answer depends on the
// processor: on amd64 with AVX2 the frequent ones are assembly, elsewhere, and for
// the rest, loops in Go. ForceGo makes the loops in Go the answer everywhere.
//
// # Exactness
//
// Both give the same bits, except where the result of arithmetic is a NaN: that it
// is a NaN is certain, its sign and payload are not (x86 hands on the first NaN
// operand, and Go may have swapped the operands). Operations that hand on an
// operand keep its bits, NaN or not: Select, Blend, FNegate, FAbs, and FMin, FMax
// and their kin. Arithmetic is IEEE 754, to nearest even, with denormals; nothing
// is fused but GLSL's Fma. For results that GLSL or SPIR-V leave open, the rules
// are:
//
//   - FMin(x, y) is y<x ? y : x and FMax(x, y) x<y ? y : x, so a NaN in x or a
//     zero of either sign in x stays. NMin and NMax give the number if one is.
//   - A float out of range of an integer becomes the nearest integer, NaN 0.
//   - Shifts take the amount modulo the width. The divisor 0 gives 0 (the engine
//     traps before), and the least integer divided by -1 wraps.
//   - FRem and FMod are exact before the one rounding of the result.
//   - Round is RoundEven. FSign of NaN is 0.
//   - Functions such as Sin are those of package math on float64, rounded to f32;
//     Exp and Exp2 are our own, also on float64.
//
// # Client memory
//
// Gather takes an index per lane, LoadAffine and StoreAffine an address that goes
// by even steps from lane to lane. Their memory belongs to a client. Others may
// change it at any time, or it may be lost. Indices come from registers, which are
// private; each element is read or written once, with a single access where its
// address is a multiple of its size. A load of less than a word may read the bytes
// around it as well, if they are in mem. Access to memory that is gone is a fault:
// under debug.SetPanicOnFault(true) a panic in the goroutine that did it, from
// assembly as from Go, with any part of the operation done.
package vec
