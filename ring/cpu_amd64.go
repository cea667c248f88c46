package ring

// pause tells the processor that this is a loop which waits for memory to change: it
// leaves the core to its sibling for some tens of cycles, and leaves the loop without
// having guessed wrong about the loads ahead.
//
//go:noescape
func pause()

// copyWords copies n words of the peer's, of which it loads each once, and returns 0 if
// they are those of known, which is nobody else's.
//
//go:noescape
func copyWords(to, from, known *uint64, n int) (differ uint64)
