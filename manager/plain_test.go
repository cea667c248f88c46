package manager

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func TestPlainError(t *testing.T) {
	err := plainError(&gpuerr.Error{Code: gpuerr.Quota, Resource: "sessions", Asked: 1, Msg: "\x1b[2J"})
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, `\x1b[2J`, gpuerr.From(err).Msg)
	require.Equal(t, "sessions", gpuerr.From(err).Resource)
	require.NoError(t, plainError(nil))
	require.Equal(t, context.Canceled, plainError(context.Canceled))
	untouched := errors.Join(gpuerr.New(gpuerr.Busy, "later"))
	require.Equal(t, untouched, plainError(untouched))
}
