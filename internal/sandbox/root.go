package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// emptyRoot makes an empty read-only file system the root directory and lets go of
// the old one. It needs mount and user namespaces of its own; it is done before
// the capabilities go.
//
// The root directory belongs to the process, not to a thread (CLONE_FS), and all
// threads of a Go program share it.
func emptyRoot() error {
	// Nothing of this is seen elsewhere, and nothing from elsewhere here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}

	at, err := mountEmpty("/proc", "/sys", "/dev", "/tmp")
	if err != nil {
		return err
	}
	if err := enterRoot(at); err != nil {
		return err
	}

	left, err := os.ReadDir("/")
	if err != nil || len(left) > 0 {
		return fmt.Errorf("the empty root has %d entries (%v)", len(left), err)
	}

	return nil
}

// enterRoot makes a mounted file system the root directory, and lets go of the old one.
func enterRoot(at string) error {
	if err := unix.Chdir(at); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}

	// With both names the same the old root ends up on top of the new one
	// (pivot_root(2), NOTES), and goes away with its mounts.
	switch err := unix.PivotRoot(".", "."); {
	case err == nil:
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("let go of the old root: %w", err)
		}
	case errors.Is(err, unix.EINVAL):
		// The root of an initramfs cannot be pivoted: cover it. No path and no
		// descriptor leads below, and chroot is no longer allowed later.
		if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("cover the old root: %w", err)
		}
		if err := unix.Chroot("."); err != nil {
			return fmt.Errorf("change to the new root: %w", err)
		}
	default:
		return fmt.Errorf("change to the new root: %w", err)
	}

	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}

	return nil
}

// mountEmpty mounts an empty file system on the first of the directories that
// there is.
func mountEmpty(dirs ...string) (at string, err error) {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, dir := range dirs {
		if err = unix.Mount("empty", dir, "tmpfs", flags, "size=4k,nr_inodes=1,mode=555"); !errors.Is(err, unix.ENOENT) {
			at = dir
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("mount an empty root: %w", err)
	}
	return at, nil
}
