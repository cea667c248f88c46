package fake

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerifyFindsAlteredRecord(t *testing.T) {
	l := newLog(1<<20, make(chan struct{}))
	for range 5 {
		require.NoError(t, l.Append("kind", "detail"))
	}
	_, err := l.Verify()
	require.NoError(t, err)
	l.mu.Lock()
	l.records[3].Detail = "Detail"
	l.mu.Unlock()
	_, err = l.Verify()
	require.ErrorContains(t, err, "record 3")
}
