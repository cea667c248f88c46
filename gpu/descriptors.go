package gpu

import (
	"context"

	"golang.org/x/sys/unix"

	"capgpu/ledger"
)

// How many of the process's descriptors an object has, each charged as ledger.Descriptors.
// Each has at most one mapping of the process, too. Memory has heap.DescriptorCount.
const (
	sessionDescriptors = 1 // its socket, which is not the core's but is there
	queueDescriptors   = 3
	// newQueueDescriptors are those of a queue besides, until its client has it: its
	// client's ends, and the duplicates.
	newQueueDescriptors = 5
)

// maxMapped is how many descriptors the objects may have at most: the kernel allows a
// process 65,530 mappings (vm.max_map_count).
const maxMapped = 48 << 10

// descriptorLimit is what the objects of all tenants may have when the process may have
// that many: all but a quarter, which it needs itself to go on. Without a free one it
// could not even take in the next session.
func descriptorLimit(process uint64) uint64 {
	return min(process-min(max(process/4, 64), process/2), maxMapped)
}

// processFiles is how many descriptors the process may have (RLIMIT_NOFILE), as it was
// started with: a confined driver may not ask.
var processFiles = func() uint64 {
	process := unix.Rlimit{Cur: 1024}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &process) // cannot fail; if it does, the usual number stands
	return process.Cur
}()

// Lend charges the session for n descriptors that are on their way to its client, until
// returned is called. It fails with E_QUOTA.
func (s *Session) Lend(n uint64) (returned func(), err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.node.Leave()
	charge, err := s.reserve(context.Background(), ledger.Descriptors, n)
	if err != nil {
		return nil, err
	}
	charge.Commit()
	s.passing.Add(&charge)
	return func() { s.passing.Release(&charge) }, nil
}
