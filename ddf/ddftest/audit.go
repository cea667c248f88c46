package ddftest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

var auditTests = []test{
	{"AppendSnapshotVerify", testAuditAppend},
	{"SnapshotIsBounded", testAuditSnapshot},
	{"BadRecordsAreRefused", testAuditBad},
	{"EveryConcurrentAppendIsThere", testAuditConcurrent},
}

// records reads the whole log from an index on.
func records(t *testing.T, log ddf.HardwareAuditLog, from uint64) []ddf.AuditRecord {
	t.Helper()
	var all []ddf.AuditRecord
	for {
		some, err := log.Snapshot(from+uint64(len(all)), 16)
		require.NoError(t, err)
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
	}
}

func testAuditAppend(t *testing.T, h Harness) {
	log := h.Grants.Audit
	before, err := log.Verify()
	require.NoError(t, err)
	last := before
	for i := range 9 {
		require.NoError(t, log.Append("test", fmt.Sprintf("entry %d", i)))
		head, err := log.Verify()
		require.NoError(t, err)
		require.Greater(t, head.Size, last.Size)
		require.NotEqual(t, last.Root, head.Root, "the head commits to every record")
		again, err := log.Verify()
		require.NoError(t, err)
		if again.Size == head.Size { // others may append too
			require.Equal(t, head.Root, again.Root)
		}
		last = head
	}

	found := 0
	for i, r := range records(t, log, before.Size) {
		require.Equal(t, before.Size+uint64(i), r.Index)
		require.False(t, r.Time.IsZero())
		if r.Kind == "test" {
			require.Equal(t, fmt.Sprintf("entry %d", found), r.Detail)
			found++
		}
	}

	require.Equal(t, 9, found)
}

func testAuditSnapshot(t *testing.T, h Harness) {
	log := h.Grants.Audit
	before, err := log.Verify()
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, log.Append("test", ""))
	}

	some, err := log.Snapshot(before.Size, 3)
	require.NoError(t, err)
	require.Len(t, some, 3)
	none, err := log.Snapshot(1<<62, 3)
	require.NoError(t, err)
	require.Empty(t, none)
	none, err = log.Snapshot(^uint64(0), 1<<30)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = log.Snapshot(0, -1)
	require.ErrorIs(t, err, gpuerr.Invalid)

	// The snapshot was a copy.
	some[0].Detail = "altered"
	_, err = log.Verify()
	require.NoError(t, err)
}

func testAuditBad(t *testing.T, h Harness) {
	log := h.Grants.Audit
	before, err := log.Verify()
	require.NoError(t, err)
	require.Error(t, log.Append("", "no kind"))
	require.Error(t, log.Append("test", strings.Repeat("x", 1<<20)))
	require.Error(t, log.Append(strings.Repeat("x", 1<<20), ""))
	after, err := log.Verify()
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func testAuditConcurrent(t *testing.T, h Harness) {
	const workers, each = 4, 20
	log := h.Grants.Audit
	before, err := log.Verify()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if err := log.Append("race", fmt.Sprintf("%d.%d", w, i)); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
		})
	}

	wg.Wait()
	_, err = log.Verify()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, r := range records(t, log, before.Size) {
		if r.Kind == "race" {
			require.False(t, seen[r.Detail], "%s is there twice", r.Detail)
			seen[r.Detail] = true
		}
	}

	require.Len(t, seen, workers*each)
}
