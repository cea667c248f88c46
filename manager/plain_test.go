package manager

import (
	"context"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"no coffee left: \"é\" \\": "no coffee left: \"é\" \\",
		"\x1b]0;owned\x07":         `\x1b]0;owned\a`,
		"a\nb\r\tc":                `a\nb\r\tc`,
		"\u202egnp.exe":            `\u202egnp.exe`,
		"bad \xff\xc3":             `bad \xff\xc3`,
		"\u0085\u009b31m":          `\u0085\u009b31m`,
	} {
		require.Equal(t, want, plain(in), "%q", in)
	}
}

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

func FuzzPlain(f *testing.F) {
	f.Add("\x1b[31m\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := plain(s)
		require.True(t, utf8.ValidString(p))
		require.Equal(t, p, plain(p), "plain text stays as it is")
	})
}
