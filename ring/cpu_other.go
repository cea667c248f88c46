//go:build !amd64

package ring

// Where there is no instruction for it here, it does nothing.

func pause() {}
