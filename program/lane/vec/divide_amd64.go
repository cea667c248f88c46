package vec

// Division by a scalar in assembly, in divide_amd64.s. c is the reciprocal.

//go:noescape
func udivByAVX2(dst, a []uint32, c uint64)

// umodByAVX2 takes the divisor as s.
//
//go:noescape
func umodByAVX2(dst, a []uint32, c uint64, s uint32)

// sdivByAVX2 takes the sign of the divisor, 0 or -1, as s.
//
//go:noescape
func sdivByAVX2(dst, a []uint32, c uint64, s uint32)

// sremByAVX2 takes the magnitude of the divisor as s.
//
//go:noescape
func sremByAVX2(dst, a []uint32, c uint64, s uint32)
