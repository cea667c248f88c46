package manager

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func TestSanitizeError(t *testing.T) {
	err := sanitizeError(&gpuerr.Error{Code: gpuerr.Quota, Resource: "sessions", Asked: 1, Msg: "\x1b[2J"})
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, `\x1b[2J`, gpuerr.From(err).Msg)
	require.Equal(t, "sessions", gpuerr.From(err).Resource)
	require.NoError(t, sanitizeError(nil))
	require.Equal(t, context.Canceled, sanitizeError(context.Canceled))
	untouched := errors.Join(gpuerr.New(gpuerr.Busy, "later"))
	require.Equal(t, untouched, sanitizeError(untouched))
}
