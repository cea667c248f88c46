package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// File is one file of the guest's root.
type File struct {
	Path    string // in the guest, without the leading slash
	Mode    uint32 // permission bits
	Content []byte
}

// guestDirs exist before init runs: mount points and the audit log's home.
var guestDirs = []string{"bin", "dev", "etc", "mnt", "proc", "run", "sys", "tmp", "var", "var/lib", "var/log"}

// WriteInitramfs writes a newc archive that depends on nothing but files:
// entries are sorted, and inode numbers, owners and times are zero.
func WriteInitramfs(w io.Writer, files []File) error {
	dirs := map[string]bool{}
	for _, d := range guestDirs {
		dirs[d] = true
	}

	for _, f := range files {
		for d := filepath.Dir(f.Path); d != "."; d = filepath.Dir(d) {
			dirs[d] = true
		}
	}

	records := make([]cpio.Record, 0, len(dirs)+len(files)+2)
	for d := range dirs {
		records = append(records, cpio.Directory(d, 0o755))
	}

	for _, f := range files {
		records = append(records, cpio.StaticRecord(f.Content, cpio.Info{Name: f.Path, Mode: cpio.S_IFREG | uint64(f.Mode)}))
	}

	// The kernel opens /dev/console for init before anything is mounted; null
	// is for the Go runtime, which opens it when a standard descriptor is shut.
	records = append(records, cpio.CharDev("dev/console", 0o600, 5, 1), cpio.CharDev("dev/null", 0o666, 1, 3))
	sort.Slice(records, func(i, j int) bool { return records[i].Name < records[j].Name })
	cpio.MakeAllReproducible(records)
	for i := range records {
		records[i].Ino = uint64(i + 1)
		records[i].NLink = 1
	}

	out := cpio.Newc.Writer(w)
	for _, r := range records {
		if err := out.WriteRecord(r); err != nil {
			return fmt.Errorf("add %s to the initramfs: %w", r.Name, err)
		}
	}

	return cpio.WriteTrailer(out)
}

// GuestCommand is a command of the repository and where the guest has it.
type GuestCommand struct{ Package, Path string }

// productCommands are the product as it is shipped.
var productCommands = []GuestCommand{
	{"./cmd/device-manager", "bin/device-manager"},
	{"./cmd/gpu-mock", "bin/gpu-mock"},
	{"./cmd/gpu-service", "bin/gpu-service"},
	{"./cmd/gpu-gate", "bin/gpu-gate"},
	{"./cmd/gpuctl", "bin/gpuctl"},
	{"./cmd/model-server", "bin/model-server"},
}

// GuestFiles builds commands from the repository, static and stripped. The last
// names of their packages differ.
func GuestFiles(ctx context.Context, repo, cacheDir string, commands []GuestCommand) ([]File, error) {
	out := filepath.Join(cacheDir, "guest")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}

	unlock, err := lockCache(out)
	if err != nil {
		return nil, err
	}

	defer unlock()

	args := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64",
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out + "/"}
	for _, c := range commands {
		args = append(args, c.Package)
	}

	if _, err := command(ctx, repo, "env", args...); err != nil {
		return nil, fmt.Errorf("build the guest's commands: %w", err)
	}

	var files []File
	for _, c := range commands {
		content, err := os.ReadFile(filepath.Join(out, filepath.Base(c.Package)))
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: c.Path, Mode: 0o755, Content: content})
	}

	return files, nil
}

// etcFiles are the guest's configuration, from a folder of the repository.
func etcFiles(etc string) ([]File, error) {
	entries, err := os.ReadDir(etc)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(etc, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: "etc/capgpu/" + e.Name(), Mode: 0o644, Content: content})
	}
	return files, nil
}

// TempInitramfs writes an initramfs to a file of its own, since two guests may run
// at once; the caller removes it.
func TempInitramfs(dir string, files []File) (path string, err error) {
	initrd, err := os.CreateTemp(dir, "initramfs-*.cpio")
	if err != nil {
		return "", err
	}
	err = errors.Join(WriteInitramfs(initrd, files), initrd.Close())
	if err != nil {
		os.Remove(initrd.Name())
		return "", fmt.Errorf("write the initramfs: %w", err)
	}
	return initrd.Name(), nil
}

// RepoRoot is the folder of the go.mod at or above the working directory.
func RepoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.Contains(string(b), "module capgpu\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("not inside the capgpu repository")
		}
		dir = filepath.Dir(dir)
	}
}
