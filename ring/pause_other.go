//go:build !amd64

package ring

// pause does nothing where there is no instruction for it here.
func pause() {}
