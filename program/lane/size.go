package lane

const (
	kernelBytes = 32 << 10 // of any kernel
	stepBytes   = 320      // of one step: its closure and its place in the list
)

// CodeBytes approximates the kernel's own memory. It may be many times the
// module's, because functions are inlined.
func (k *Kernel) CodeBytes() int {
	steps := len(k.consts)
	for i := range k.blocks {
		steps += 1 + len(k.blocks[i].code) + len(k.blocks[i].cases)
		for _, e := range k.blocks[i].edges {
			steps += 1 + len(e.copies)
		}
	}
	return kernelBytes + steps*stepBytes
}
