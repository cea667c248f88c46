//go:build !race

package ring

// Words that one goroutine stores and another loads, with something in between that orders
// them and that the race detector does not see: what the driver says, for user data.
func storeUser(at *uint64, v uint64) { *at = v }
func loadUser(at *uint64) (v uint64) { return *at }

// storeLast stores sqLast, which the driver may look at meanwhile. It is whole whenever it is
// read, and there before sqTail is.
func storeLast(at *uint64, v uint64) { *at = v }
