package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is the root directory of an engine: read-only, with these paths of the host at their
// own names and nothing else.
type Root struct {
	// Run are folders and files that are read and executed: the libraries.
	Run []string `json:"run,omitempty"`
	// Read are files, or folders, that are read: the manifest of a driver, files of /sys.
	Read []string `json:"read,omitempty"`
	// Nodes are device nodes.
	Nodes []string `json:"nodes,omitempty"`
	// Proc adds a /proc of the process's own pid namespace.
	Proc bool `json:"proc,omitempty"`
}

// rights are what landlock leaves.
func (r Root) rights() (all []pathRight) {
	for _, x := range []struct {
		paths  []string
		rights uint64
	}{{r.Run, landlockRun}, {r.Read, landlockRead}, {r.Nodes, landlockNode}} {
		for _, p := range x.paths {
			all = append(all, pathRight{path: p, rights: x.rights})
		}
	}
	if r.Proc { // a library writes the names of its threads there
		all = append(all, pathRight{path: "/proc", rights: landlockWrite})
	}
	return all
}

// tops are the names in the root directory.
func (r Root) tops() (names []string) {
	for _, p := range slices.Concat(r.Run, r.Read, r.Nodes) {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Clean(p), "/"), "/")
		names = append(names, name)
	}
	if r.Proc {
		names = append(names, "proc")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tree is a part of the host's files that is about to be mounted.
type tree struct {
	path string
	fd   int // a detached copy of its mount
	dir  bool
}

// make makes it the root directory. It needs mount and user namespaces of its own.
func (r Root) make() (err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}

	// All is taken hold of first: the new root covers a folder of the old one.
	var trees []tree
	defer func() {
		for _, t := range trees {
			unix.Close(t.fd)
		}
	}()
	add := func(paths []string, attr uint64) error {
		for _, p := range paths {
			t, err := detach(p, attr)
			if err != nil {
				return err
			}
			trees = append(trees, t)
		}
		return nil
	}
	const quiet = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID
	if err := errors.Join(
		add(r.Run, quiet|unix.MOUNT_ATTR_NODEV),
		add(r.Read, quiet|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC),
		add(r.Nodes, quiet|unix.MOUNT_ATTR_NOEXEC), // a node can be written to all the same
	); err != nil {
		return err
	}
	if r.Proc {
		fd, err := mountProc()
		if err != nil {
			return fmt.Errorf("make a /proc: %w", err)
		}
		trees = append(trees, tree{path: "/proc", fd: fd, dir: true})
	}

	at, err := mountRoom("/mnt", "/tmp", "/proc", "/sys")
	if err != nil {
		return err
	}
	if err := unix.Chdir(at); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	slices.SortStableFunc(trees, func(a, b tree) int { return strings.Compare(a.path, b.path) }) // folders before what is in them
	for i, t := range trees {
		if within(t.path, trees[:i]) {
			continue // it is there
		}
		if err := t.attach(); err != nil {
			return fmt.Errorf("mount %s: %w", t.path, err)
		}
	}

	final := unix.MountAttr{Attr_set: quiet | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(unix.AT_FDCWD, ".", 0, &final); err != nil {
		return fmt.Errorf("make the new root read-only: %w", err)
	}
	return enterRoot(at)
}

// within reports whether a path lies in one of the trees, which are folders.
func within(path string, trees []tree) bool {
	return slices.ContainsFunc(trees, func(t tree) bool { return t.dir && (path == t.path || strings.HasPrefix(path, t.path+"/")) })
}

// detach copies the mount of a path, with all below it (open_tree(2), Linux 5.2;
// mount_setattr(2), 5.12).
func detach(path string, attr uint64) (tree, error) {
	info, err := os.Stat(path)
	if err != nil {
		return tree{}, fmt.Errorf("the engine needs %s: %w", path, err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, fmt.Errorf("take hold of %s: %w", path, err)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
		unix.Close(fd)
		return tree{}, fmt.Errorf("make %s read-only: %w", path, err)
	}
	return tree{path: filepath.Clean(path), fd: fd, dir: info.IsDir()}, nil
}

// mountProc makes a /proc that shows the process's own pid namespace.
func mountProc() (int, error) {
	ctx, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// mountRoom mounts a file system with room for names on the first of the folders that there
// is.
func mountRoom(dirs ...string) (at string, err error) {
	for _, dir := range dirs {
		if err = unix.Mount("engine", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=256k,nr_inodes=1024,mode=755"); !errors.Is(err, unix.ENOENT) {
			at = dir
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("mount a new root: %w", err)
	}
	return at, nil
}

// attach mounts the tree at its own name below the current directory.
func (t tree) attach() error {
	target := strings.TrimPrefix(t.path, "/")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if t.dir {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	} else {
		f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o444)
		if err != nil {
			return err
		}
		f.Close()
	}
	return unix.MoveMount(t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
