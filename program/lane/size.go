package lane

// stepBytes is about what one step takes: its closure and its place in the list.
const stepBytes = 320

// CodeBytes is about how much memory the kernel itself takes. It may be many times
// the module: functions are inlined.
func (k *Kernel) CodeBytes() int {
	steps := len(k.consts)
	for i := range k.blocks {
		steps += 1 + len(k.blocks[i].code) + len(k.blocks[i].cases)
		for _, e := range k.blocks[i].edges {
			steps += 1 + len(e.copies)
		}
	}
	return steps * stepBytes
}
