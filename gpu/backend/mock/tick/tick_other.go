//go:build !amd64 || !linux

package tick

const usable = false

func counter() uint64 { return 0 }

func readPair() (pair, bool) { return pair{}, false }
