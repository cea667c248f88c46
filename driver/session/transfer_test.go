package session_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
)

// Bytes of any length come into a buffer that cannot be mapped, and out of it, and nothing
// that was made for that is left.
func TestUploadDownload(t *testing.T) {
	for name, local := range map[string]uint64{"unified": 0, "discrete": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			svc := sessiontest.Start(t, sessiontest.Options{Mock: mock.Options{LocalBytes: local}})
			ctx := testContext(t)
			s := svc.Open(t)
			d, err := s.Describe(ctx)
			require.NoError(t, err)
			require.Equal(t, local, d.LocalBytes)

			const size = 9<<20 + 5
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(i*31 ^ i>>13)
			}

			for _, usage := range []client.Usage{client.Device, client.Storage} {
				b, err := s.CreateBuffer(ctx, size, usage)
				require.NoError(t, err)
				got := make([]byte, size)
				require.NoError(t, b.Download(ctx, got, 0))
				require.Equal(t, make([]byte, size), got, "new memory is zero")
				require.NoError(t, b.Upload(ctx, want, 0))
				require.NoError(t, b.Download(ctx, got, 0))
				require.True(t, bytes.Equal(want, got))

				require.NoError(t, b.Upload(ctx, []byte("middle"), 4<<20-3))
				require.NoError(t, b.Download(ctx, got[:12], 4<<20-6))
				require.Equal(t, "middle", string(got[3:9]))
				require.Equal(t, want[4<<20-6], got[0])
				require.Equal(t, want[4<<20+5], got[11])

				require.NoError(t, b.Upload(ctx, nil, size))
				require.Error(t, b.Upload(ctx, []byte{1}, size))
				require.Error(t, b.Download(ctx, make([]byte, 2), size-1))
				require.NoError(t, b.Close(ctx))
			}

			for _, e := range must(s.Budget(ctx)) {
				if e.Resource == "buffers" || e.Resource == "queueSlots" || e.Resource == "deviceMemory" {
					require.Zero(t, e.Used, e.Resource)
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A buffer of usage device says what to do where it cannot do what was asked.
func TestDeviceBufferIsHidden(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Device)
	require.NoError(t, err)
	fd, _, _ := b.Memory()
	require.Equal(t, -1, fd)
	_, err = b.Map()
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	require.ErrorContains(t, err, "Upload and Download")
	_, _, _, err = b.DupMemory()
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	_, err = b.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	_, err = b.WriteAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	require.NoError(t, b.Close(ctx))
	_, err = b.Map()
	require.Error(t, err)
}
