// Package kernelgen makes random compute kernels in GLSL to compare engines: all
// correct engines must end with the same bytes.
//
// A kernel is a tree of templates. It is made from a seed (the same seed and
// options always give the same kernel), printed as GLSL, or as OpenCL C with the
// same meaning, and made smaller by Shrink when engines differ. Every template
// keeps, by itself, the rules that give a kernel one right result, so that parts
// can be removed independently of the rest:
//
//   - indices are masked into range, divisors are not zero, shifts and bit fields
//     are within the width, remainders have no negative operand;
//   - a variable is initialised where it is declared;
//   - a loop ends after a few rounds, whatever its body does;
//   - an invocation writes only its own slots of buffers and of shared memory, and
//     reads those of others only between two barriers; barriers and subgroup
//     operations stand in control flow that a workgroup takes as one;
//   - memory to which several invocations add is changed by atomics of one commuting
//     kind, with unused results;
//   - floats stay between 2^-10 and 2^12 (or 0) where they are stored, and are put
//     together, a few at a time, by operations that IEEE 754 rounds in one way
//     (the module must be made glsl.Exact); the sign of a zero and NaNs are
//     ignored. Results of other functions go only to a buffer of their own,
//     Approximate, which is compared with a tolerance.
package kernelgen
