package library_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library"
	"capgpu/program/names"
)

func TestNamesAreThoseOfThePolicy(t *testing.T) {
	require.Equal(t, library.Names(), names.Library)
}
