// How subnormal numbers are treated, in MXCSR: see floats.go. FLUSH is the beginning of
// a function that takes them for zeros, KEEP the end. Nothing is kept across Go code,
// and what was there before is known: it is what Go starts its threads with. (To store
// it and load it again takes four times as long.)
#define FLUSH LDMXCSR ·flushing(SB)
#define KEEP LDMXCSR ·keeping(SB)
