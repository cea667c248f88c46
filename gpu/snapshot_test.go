package gpu

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// A state that is too large to be written down beside what it is of stays where it is.
func TestExportIsBounded(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	var one recorder
	one.fill(buf(t, s, 4096), 0, 64, 1)
	one.args = make([]byte, MaxListArgBytes)
	from := one.put(t, s)
	for range maxBulk/MaxListArgBytes + 1 {
		_, err := s.RecordList(from, 0, one.n, MaxListArgBytes)
		require.NoError(t, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	require.NoError(t, r.dev.Freeze(ctx))
	_, _, err := r.dev.Snapshot()
	require.ErrorIs(t, err, gpuerr.Busy)
	r.dev.Thaw()
}
