//go:build !amd64

package ring

// Where there is no instruction for it here, they do nothing.

func pause() {}

func copyWords(to, from, known *uint64, n int) (differ uint64) {
	return copyWordsPlain(to, from, known, n)
}
