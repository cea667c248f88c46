package figures

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any violation makes a soak bad, and is in the table.
func TestSoakResult(t *testing.T) {
	good := func() SoakResult {
		return SoakResult{Memory: map[string]Slope{soakManager: {First: 50 << 20, Last: 52 << 20}, soakDriver: {First: 100 << 20, Last: 110 << 20}}}
	}

	r := good()
	require.True(t, r.Good())
	for name, spoil := range map[string]func(*SoakResult){
		"bytes":       func(r *SoakResult) { r.Bytes = 4096 },
		"descriptors": func(r *SoakResult) { r.Descriptors = 1 },
		"memory":      func(r *SoakResult) { r.Memory[soakDriver] = Slope{First: 100 << 20, Last: 150 << 20} },
	} {
		r := good()
		spoil(&r)
		require.False(t, r.Good(), name)
		var table bytes.Buffer
		r.Print(&table)
		require.Equal(t, name == "memory", bytes.Contains(table.Bytes(), []byte("GROWS")), name)
	}
}
