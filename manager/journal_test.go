package manager

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mappingsIn sums up the mappings in the records of a log.
func mappingsIn(t *testing.T, l *testLog) (sum mappings, records int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		var n mappings
		_, detail, _ := strings.Cut(r.Detail, "epoch=1 ")
		switch r.Kind {
		case "dma.map":
			var iova uint64
			got, err := fmt.Sscanf(detail, "iova=0x%x bytes=%d generation=%d", &iova, &n.mapBytes, &n.first)
			require.Equal(t, 3, got, err)
			n.maps, n.last = 1, n.first
		case "dma.unmap":
			n.unmaps = 1
		case "dma.summary":
			var mapSum, unmapSum string
			_, err := fmt.Sscanf(detail, "maps=%d mapBytes=%d mapSum=%s unmaps=%d unmapBytes=%d unmapSum=%s generations=%d-%d",
				&n.maps, &n.mapBytes, &mapSum, &n.unmaps, &n.unmapBytes, &unmapSum, &n.first, &n.last)
			require.True(t, err == nil || n.maps == 0, "%s: %v", r.Detail, err)
		default:
			continue
		}
		sum.add(n)
		records++
	}
	return sum, records
}

// Freed memory is free whether or not the log takes the record: a driver with an error from
// Free would give up the device.
func TestFreeWithoutRecord(t *testing.T) {
	g := grant(t, grantTestLimits())
	before := g.usage()
	link := dialGrants(t, g)
	b, err := link.GrantSet().DMA.Alloc(t.Context(), 1<<20)
	require.NoError(t, err)
	g.log.setRefuse(unix.ENOSPC)
	require.NoError(t, b.Free())
	require.Equal(t, before, g.usage())
	_, err = g.alloc(4096)
	require.ErrorContains(t, err, "nothing is granted")

	// The log recovers, and has all records in the end.
	g.log.setRefuse(nil)
	g.stop(t)
	sum, _ := mappingsIn(t, g.log)
	require.EqualValues(t, 1, sum.maps, "what was refused was never there")
	require.EqualValues(t, 1, sum.unmaps)
}

// Any number of mappings makes few records, and every mapping is in one.
func TestMappingsAreAllRecorded(t *testing.T) {
	g := grant(t, grantTestLimits())
	const rounds = 5000
	for range rounds {
		d, err := g.alloc(4096)
		require.NoError(t, err)
		require.NoError(t, g.free(d))
	}
	g.stop(t)
	sum, records := mappingsIn(t, g.log)
	require.EqualValues(t, rounds, sum.maps)
	require.EqualValues(t, rounds, sum.unmaps)
	require.EqualValues(t, rounds*4096, sum.mapBytes)
	require.EqualValues(t, rounds, sum.last, "the last generation")
	require.Less(t, records, rounds/2)
}

func TestJournalRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testLog{}
		j := newJournal(log, slog.New(slog.DiscardHandler), "mock0 epoch=1")
		mapOne := func(generation uint64) error { return j.mapped(&dmaMemory{bytes: 4096, generation: generation}) }
		for i := range uint64(recordBurst + 10) {
			require.NoError(t, mapOne(i+1))
		}
		_, records := mappingsIn(t, log)
		require.Equal(t, recordBurst, records)
		time.Sleep(summaryDelay + time.Millisecond)
		sum, records := mappingsIn(t, log)
		require.Equal(t, recordBurst+1, records, "one summary")
		require.EqualValues(t, recordBurst+10, sum.maps)
		require.EqualValues(t, recordBurst+10, sum.last)

		// A log that refuses the summary refuses later mappings; nothing is lost.
		for mapOne(1000) == nil {
			log.setRefuse(unix.ENOSPC)
		}
		log.setRefuse(nil)
		before, _ := mappingsIn(t, log)
		time.Sleep(time.Hour)
		j.close()
		sum, _ = mappingsIn(t, log)
		require.GreaterOrEqual(t, sum.maps, before.maps)
		j.mu.Lock()
		left := j.pending
		j.mu.Unlock()
		require.Zero(t, left)

		// Nothing is counted while the log takes no records: each mapping is refused.
		j = newJournal(log, slog.New(slog.DiscardHandler), "mock0 epoch=1")
		log.setRefuse(unix.ENOSPC)
		for range recordBurst + 10 {
			require.Error(t, mapOne(1))
		}
		log.setRefuse(nil)
		require.NoError(t, mapOne(1), "it recovers with the log")
		j.close()
	})
}
