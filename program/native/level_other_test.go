//go:build !amd64

package native

import "testing"

// atLevel runs a test with the one instruction set there is.
func atLevel(t *testing.T, f func(t *testing.T)) { f(t) }
