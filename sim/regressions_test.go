package sim

// regressions are seeds that once failed, by what they found. What a seed does changes with
// the simulator; that it passes does not.
var regressions = []uint64{
	0x653c0bfecead92ab, // two queues made at once: the simulator mixed up their rings
	0x1120b3d00955f032, // a client hangs up while it opens the device
	0x118e846ea93bc949, // a completion that is read after its session was scrubbed
}
