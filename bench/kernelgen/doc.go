// Package kernelgen makes random compute kernels in GLSL to compare engines with:
// whatever runs one of them right must end with the same bytes.
//
// A kernel is a tree of templates. It is made from a seed (the same seed and
// options always give the same kernel), printed as GLSL, or as OpenCL C with the same
// meaning, and made smaller by Shrink when engines differ. Every template keeps, by itself, the promises that
// make a kernel have one right result, so that parts can be taken out without
// looking at the rest:
//
//   - indices are masked into range, divisors are not zero, shifts and bit fields
//     are within the width, remainders have no negative operand;
//   - a variable is initialised where it is declared;
//   - a loop ends after a few rounds, whatever its body does;
//   - an invocation writes only its own slots of buffers and of shared memory, and
//     reads those of others only between two barriers; barriers and subgroup
//     operations stand in control flow that a workgroup takes as one;
//   - what several invocations add to is changed by atomics of one commuting kind,
//     whose results nobody looks at;
//   - floats stay between 2^-10 and 2^12 (or 0) where they are stored, and are put
//     together, a few at a time, by operations that IEEE 754 rounds in one way
//     (the module must be made glsl.Exact); the sign of a zero and NaNs are not
//     looked at. Other functions go to a buffer of their own, Approximate, which
//     is compared with a tolerance, and nowhere else.
package kernelgen
