package rpcguard

import (
	"context"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
)

// A call that is given up leaves no descriptor with its caller at any moment: before the
// server has begun, while the answer is on its way, or after it has come.
func TestDescriptorsOfCallsThatAreGivenUp(t *testing.T) {
	m, _, transport := dial(t, newService())
	ctx := testContext(t)
	opened, release := m.OpenDevice(ctx, open(openSession))
	defer release()
	made, release2 := opened.Session().CreateBuffer(ctx, size(1))
	defer release2()
	buffer := made.Buffer()
	_, err := made.Struct()
	require.NoError(t, err)

	before := leakcheck.Descriptors()
	came := 0
	for i := range 3000 {
		given, cancel := context.WithCancel(ctx)
		mapped, release := buffer.MapReadWrite(given, nil)
		switch i % 3 {
		case 0:
			cancel()
		case 1:
			go cancel()
		}
		if res, err := mapped.Struct(); err == nil {
			came++
			if i%2 == 0 {
				if fd, ok := transport.TakeFD(capnp.Client(res.Memory())); ok {
					require.NoError(t, unix.Close(fd))
				}
			}
		}
		cancel()
		release()
	}
	t.Logf("%d of 3000 were answered in time; %d before", came, before)
	require.Eventually(t, func() bool {
		transport.codec.mu.Lock()
		defer transport.codec.mu.Unlock()
		return len(transport.codec.open)+len(transport.codec.fds) == 0 && leakcheck.Descriptors() == before
	}, 10*time.Second, 10*time.Millisecond, "%d descriptors before", before)
}
