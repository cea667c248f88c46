package peers

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	RunIfPeer()
	os.Exit(m.Run())
}

func TestRaw(t *testing.T) {
	r, err := NewRaw()
	require.NoError(t, err)
	many := func(round func() error) error {
		for range 200 {
			if err := round(); err != nil {
				return err
			}
		}
		return nil
	}
	for range 3 { // from one to the other and back
		require.NoError(t, r.Spin(many))
		require.NoError(t, r.Futex(many))
	}
	require.NoError(t, r.Close())
}

func TestRPC(t *testing.T) {
	for _, name := range RPCNames {
		r, err := NewRPC(name)
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, r.Call(), name)
		}
		require.NoError(t, r.Close())
		require.Error(t, r.Call(), "%s: the server is gone", name)
	}
	_, err := NewRPC("none")
	require.Error(t, err)
}

func TestUring(t *testing.T) {
	u, err := NewUring(256)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skip("io_uring is forbidden here: ", err)
	}
	require.NoError(t, err)
	for range 10 { // more than once around
		require.NoError(t, u.Nops(256))
		require.NoError(t, u.Nops(1))
	}
	require.NoError(t, u.Close())
}

func TestMemfdLife(t *testing.T) {
	require.NoError(t, MemfdLife(1<<20))
	mem := make([]byte, 3*PageBytes)
	Touch(mem)
	require.Equal(t, []byte{1, 1, 1}, []byte{mem[0], mem[PageBytes], mem[2*PageBytes]})
}
