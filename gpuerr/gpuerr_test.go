package gpuerr

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableMatchesDocument holds docs/errors.md to the codes: number, name, type.
func TestTableMatchesDocument(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	types := map[Class]string{ClassFailed: "failed", ClassOverloaded: "overloaded", ClassDisconnected: "disconnected", ClassUnimplemented: "unimplemented"}
	for _, c := range Codes() {
		row := fmt.Sprintf("| %d | %s | %s |", uint16(c), c, types[c.Class()])
		require.Contains(t, string(page), row)
	}
	require.Equal(t, len(Codes()), strings.Count(string(page), "| E_"), "a code in the page that is not in the table")
}

func TestErrorText(t *testing.T) {
	require.Equal(t, "E_QUOTA deviceMemory asked=1048576 available=4096", Refused("deviceMemory", 1<<20, 4096).Error())
	require.Equal(t, "E_QUOTA sessions asked=1 available=0", Refused("sessions", 1, 0).Error())
	require.Equal(t, "E_INVALID: bytes: must be positive", New(Invalid, "bytes: must be positive").Error())
	require.Equal(t, "E_65535", Code(65535).Error())
	require.False(t, Code(65535).Valid())
	require.False(t, None.Valid())
}

func TestFrom(t *testing.T) {
	require.Nil(t, From(nil))
	require.Equal(t, None, CodeOf(nil))

	quota := Refused("fences", 2, 1)
	require.Same(t, quota, From(quota))

	wrapped := fmt.Errorf("create fence: %w", quota)
	require.ErrorIs(t, wrapped, Quota)
	require.NotErrorIs(t, wrapped, Stale)
	from := From(wrapped)
	require.Equal(t, Quota, from.Code)
	require.Equal(t, uint64(2), from.Asked)
	require.Contains(t, from.Msg, "create fence")

	require.Equal(t, Stale, CodeOf(fmt.Errorf("wait: %w", Stale)))
	require.Equal(t, Internal, CodeOf(errors.New("anything")))
}
