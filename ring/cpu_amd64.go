package ring

// pause tells the processor that this is a loop which waits for memory to change: it
// leaves the core to its sibling for some tens of cycles, and leaves the loop without
// having guessed wrong about the loads ahead.
//
//go:noescape
func pause()
