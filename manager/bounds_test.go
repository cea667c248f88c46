package manager

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEntriesWithin(t *testing.T) {
	p := DevPolicy() // three tenants, 64 + 64 + 4 connections
	const tenants = connectionDescriptors*132 + 3*tenantDescriptors
	one := p.named()
	fixed := uint64(reservedDescriptors + tenants + functionDescriptors + 2*one[0].Vectors)
	const plenty = 1 << 30
	within := func(functions []FunctionPolicy, files uint64) ([]uint64, error) {
		return entriesWithin(p, functions, processLimits{files: files, mappings: plenty})
	}
	n, err := within(one, 1<<20)
	require.NoError(t, err)
	require.Equal(t, []uint64{p.Device.IOVAEntries}, n, "the policy's, if there is room")
	n, err = within(one, 1024)
	require.NoError(t, err)
	require.Equal(t, []uint64{1024 - fixed}, n)
	_, err = within(one, 512)
	require.ErrorContains(t, err, "raise the limit")

	// Several functions share the available number in proportion to their requests.
	three := []FunctionPolicy{{IOVAEntries: 1000}, {IOVAEntries: 3000}, {IOVAEntries: 0}}
	room := uint64(400)
	n, err = within(three, reservedDescriptors+tenants+3*functionDescriptors+room)
	require.NoError(t, err)
	require.Equal(t, []uint64{100, 300, 0}, n)
	huge := []FunctionPolicy{{IOVAEntries: math.MaxInt64}, {IOVAEntries: math.MaxInt64}, {IOVAEntries: math.MaxInt64}}
	n, err = within(huge, 1<<16)
	require.NoError(t, err)
	require.LessOrEqual(t, n[0]+n[1]+n[2], uint64(1<<16))
	require.NotZero(t, n[2])

	// The same for mappings, with any number of open files.
	n, err = entriesWithin(p, three, processLimits{files: plenty, mappings: reservedMappings + room})
	require.NoError(t, err)
	require.Equal(t, []uint64{100, 300, 0}, n)
	n, err = entriesWithin(p, huge, processLimits{files: plenty, mappings: 65530}) // the kernel's default
	require.NoError(t, err)
	require.InDelta(t, 65530-reservedMappings, n[0]+n[1]+n[2], 3)
	_, err = entriesWithin(p, one, processLimits{files: plenty, mappings: reservedMappings})
	require.ErrorContains(t, err, "raise vm.max_map_count")

	// The limits of this process.
	n, err = affordableEntries(p, huge)
	require.NoError(t, err)
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	require.NoError(t, err)
	limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	require.NoError(t, err)
	require.LessOrEqual(t, n[0]+n[1]+n[2]+reservedMappings, limit)
}

func TestTurnstile(t *testing.T) {
	s := newTurnstile(1)
	require.NoError(t, s.enter(context.Background()))
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStopping)
	require.ErrorIs(t, s.enter(ctx), errStopping)
	s.leave()
	require.NoError(t, s.enter(context.Background()))
}
