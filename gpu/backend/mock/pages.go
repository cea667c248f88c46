package mock

import "sync/atomic"

// aroundBytes is how much, aligned, the kernel maps around a page that is read, as far as
// it is there (fault_around_bytes in debugfs, as it is without a setting). Around one that
// is written to it maps nothing.
const aroundBytes = 64 << 10

// around splits what is about to be written where the kernel does, from its beginning on: it
// returns the first piece, of which a word was read, and the rest. Memory that was just made
// has all its pages and none is mapped: without this each would be a fault of its own, which
// takes several times as long as it takes to write a page. Ranges that are small enough for
// Run are not split: then nothing is different there, down to where memory is gone.
func around(words []uint32) (piece, rest []uint32) {
	if len(words) == 0 {
		return nil, nil
	}
	atomic.LoadUint32(&words[0])
	n := min(wordsUpTo(words, aroundBytes), len(words))
	return words[:n], words[n:]
}
