package sim

// regressions are seeds that once failed, with the bugs that they found. The
// actions of a seed change with the simulator; that it passes does not.
var regressions = []uint64{
	0x653c0bfecead92ab, // two queues made at once: the simulator mixed up their rings
	0x1120b3d00955f032, // a client hangs up while it opens the device
	0x8a1d3e63c40a74c3, // a position that goes back before the driver has seen it is harmless
	0x4bc5cc1b6e590180, // the remains of a dead driver submit work to the device
	0x118e846ea93bc949, // a completion that is read after its session was scrubbed
	0x33c9d791541cfa5b, // a wait for a queue's signal, after the queue's client broke the protocol
	0x1e94ac4b44bdfdfc, // the same, and a call that waits for that
	0x92d7044cf2270e69, // a position that goes back to where the driver has taken entries up to: it went round and round
}
