// Package spirvtest makes SPIR-V for tests: whole modules by Builder, and broken
// ones by Mutate.
//
//	b := spirvtest.New()
//	x := b.Buffer(0, b.Float(32), 4)
//	id := b.Input(b.Vec(b.Uint(32), 3), spirv.BuiltInGlobalInvocationId)
//	main := b.Func(b.Void())
//	i := b.Op(spirv.OpCompositeExtract, b.Uint(32), b.Load(b.Vec(b.Uint(32), 3), id), 0)
//	p := b.Access(spirv.StorageClassStorageBuffer, b.Float(32), x, b.U32(0), i)
//	v := b.Load(b.Float(32), p)
//	b.Store(p, b.Op(spirv.OpFAdd, b.Float(32), v, v))
//	b.Return()
//	b.End()
//	b.Compute(main, "main", 64, 1, 1)
//	module := b.Bytes()
//
// A Builder checks nothing, and keeps a wrong order as it is. It panics on an
// argument that is no operand.
package spirvtest
