package pci

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":2,"claims":[{"address":"0000:01:00.0","id":"10de:2330","boot":"00000000-0000-4000-8000-000000000001","former":"nvidia","override":"","releasing":true}]}`))
	f.Add([]byte(`{"version":2,"claims":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		claims, err := parseJournal(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(journalFile{Version: journalVersion, Claims: claims})
		require.NoError(t, err)
		back, err := parseJournal(again)
		require.NoError(t, err)
		require.Equal(t, claims, back)
		for _, c := range claims {
			require.True(t, driverName(c.Former) && driverName(c.Override))
		}
	})
}
