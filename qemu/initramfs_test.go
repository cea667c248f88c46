package qemu

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"
)

func TestInitramfsIsReproducible(t *testing.T) {
	files := []File{
		{Path: "init", Mode: 0o755, Content: []byte("the first process")},
		{Path: "bin/a", Mode: 0o755, Content: []byte("a")},
		{Path: "etc/capgpu/policy.json", Mode: 0o644, Content: []byte("{}")},
	}
	var first bytes.Buffer
	require.NoError(t, WriteInitramfs(&first, files))
	for range 8 { // the order of a map differs from one iteration to the next
		var again bytes.Buffer
		swapped := []File{files[2], files[0], files[1]}
		require.NoError(t, WriteInitramfs(&again, swapped))
		require.True(t, bytes.Equal(first.Bytes(), again.Bytes()), "two archives of the same files differ")
	}
}

func TestInitramfsHoldsTheFilesAndTheirFolders(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteInitramfs(&out, []File{{Path: "etc/capgpu/policy.json", Mode: 0o640, Content: []byte("{}")}}))
	seen := map[string]cpio.Record{}
	require.NoError(t, cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(out.Bytes())), func(r cpio.Record) error {
		seen[r.Name] = r
		return nil
	}))
	for _, dir := range []string{"proc", "sys", "run", "var/lib", "etc", "etc/capgpu"} {
		require.Equal(t, uint64(cpio.S_IFDIR|0o755), seen[dir].Mode, "mode of %s", dir)
	}
	require.Equal(t, uint64(cpio.S_IFCHR|0o600), seen["dev/console"].Mode)
	f := seen["etc/capgpu/policy.json"]
	require.Equal(t, uint64(cpio.S_IFREG|0o640), f.Mode)
	content, err := io.ReadAll(io.NewSectionReader(f, 0, int64(f.FileSize)))
	require.NoError(t, err)
	require.Equal(t, "{}", string(content))
}

// TestGuestImageIsReproducible builds the guest's commands twice, in different
// folders, and wants byte-identical images.
func TestGuestImageIsReproducible(t *testing.T) {
	repo, err := RepoRoot()
	require.NoError(t, err)
	var images [2]bytes.Buffer
	for i := range images {
		files, err := smokeFiles(t.Context(), repo, t.TempDir(), t.Logf)
		require.NoError(t, err)
		require.NoError(t, WriteInitramfs(&images[i], files))
	}
	require.True(t, bytes.Equal(images[0].Bytes(), images[1].Bytes()), "two builds of the guest image differ")
}
