// Package lane runs admitted programs: the whole workgroup in lock-step, in pure
// Go. It is the mock GPU, and the reference that every other engine is compared
// with.
//
// Compile turns a module into code for one size of workgroup and of subgroup:
//
//	lower    functions inlined, composites taken apart, local variables made values
//	uniform  what is the same on all lanes is computed once per workgroup
//	affine   indices that are linear in the lane's number need no vector
//	optimize multiply-add, common values, code moved out of loops and launches
//	alloc    registers, each a vector with one word per lane
//	emit     steps: functions with their registers bound
//
// A Worker has the registers and the memory of one workgroup and runs one after the
// other; any number of workers may run parts of one launch. Results do not depend
// on how workgroups are spread over workers, except for programs with
// Info.OrderDependent. A Worker allocates nothing while it runs.
//
// # Execution model
//
// Lanes are numbered by LocalInvocationIndex; a subgroup is a run of consecutive
// lanes. Each instruction runs on all active lanes before the next; lanes that part
// at a branch come together at its merge block. If several lanes access one place,
// they do so in ascending order. Shared memory is full of 0xCD when a workgroup
// starts, local variables are zero.
//
// # Traps
//
// The first lane with undefined behaviour ends the launch: an access beyond its
// memory or past a fixed array's end, a misaligned binding, an integer division by
// zero, a barrier without some of the lanes that have not returned, or reaching
// OpUnreachable. Lanes are ordered by workgroup, then by instruction in the order
// of execution, then by lane. Trap.Binding is 0xFFFF if the memory is no binding.
//
// A barrier's lanes are all those that have not returned: lanes that wait at a merge
// block count, unless nothing is left from there but to return.
//
// # Limits
//
// Compile refuses a program that would need more than 16 MiB per worker
// (E-GPU-4012), that has more than 64 Ki instructions with its functions inlined
// and its composites split, or that takes more than some hundred milliseconds to
// compile (SPV-2900). Run checks its stop flag at every loop's end and about every
// 100 µs of straight code.
//
// # Checked kernels
//
// With Options.Check every access is checked, see Worker.Findings: races, reads of
// unwritten shared memory, barriers that lanes have left. It is much slower, and
// its results are the same.
//
// # Client memory
//
// Bindings may change under a running program: no index is read twice. If their
// memory is lost, the fault panics out of Run. The caller of Run must therefore
// have called debug.SetPanicOnFault; the worker may be used again.
package lane
