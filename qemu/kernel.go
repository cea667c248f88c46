package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelPackage is a meta package of Debian 12's security suite; it depends on
// the package of the newest build, which holds the kernel.
const kernelPackage = "linux-image-6.12-cloud-amd64"

// debianSources is used when the host's own package lists do not know the kernel
// (no lists yet, another release, a broken source). It never touches the host's.
const debianSources = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main\n"

// CacheDir is where downloads and guest binaries are kept: $CAPGPU_CACHE, or
// $XDG_CACHE_HOME/capgpu, or .cache in the repository.
func CacheDir(repo string) string {
	if dir := os.Getenv("CAPGPU_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "capgpu")
	}
	return filepath.Join(repo, ".cache")
}

// Kernel is a guest kernel and the modules of it that the guest loads.
type Kernel struct {
	Image   string // path of the vmlinuz
	Modules string // folder of the files of guestModules; "" = there is none
}

// guestModules make vfio of a Debian kernel, in the order in which they load.
var guestModules = []string{"irqbypass", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"}

// moduleSuffix: Debian compresses its modules; the kernel unpacks them itself.
const moduleSuffix = ".ko.xz"

// FindKernel returns a guest kernel: the one that $KERNEL names (its modules, if any, by
// $KERNEL_MODULES), else the cached one, else it downloads the Debian package into cacheDir,
// where apt checks its signature, and unpacks the needed files. Nothing is installed on the
// host.
func FindKernel(ctx context.Context, cacheDir string, logf func(format string, args ...any)) (Kernel, error) {
	if path := os.Getenv("KERNEL"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return Kernel{}, fmt.Errorf("the kernel that KERNEL= names: %w", err)
		}
		return Kernel{Image: path, Modules: os.Getenv("KERNEL_MODULES")}, nil
	}

	unlock, err := lockCache(cacheDir)
	if err != nil {
		return Kernel{}, err
	}

	defer unlock()
	if k, ok := cachedKernel(cacheDir); ok {
		return k, nil
	}

	logf("no kernel with its modules in %s yet: downloading %s (34 MB)", cacheDir, kernelPackage)
	if err := fetchKernel(ctx, cacheDir); err != nil {
		return Kernel{}, fmt.Errorf("get a guest kernel (or name one by KERNEL=/path/to/vmlinuz and KERNEL_MODULES=/folder/of/its/vfio/modules): %w", err)
	}

	k, ok := cachedKernel(cacheDir)
	if !ok {
		return Kernel{}, fmt.Errorf("the package of %s lacks the kernel or one of the modules %v; name a kernel by KERNEL=/path/to/vmlinuz", kernelPackage, guestModules)
	}

	return k, nil
}

// ModuleFiles are the guest's files for the kernel's modules: see guest/boot.
func (k Kernel) ModuleFiles() ([]File, error) {
	if k.Modules == "" {
		return nil, fmt.Errorf("no modules for the kernel %s: name their folder by KERNEL_MODULES=", k.Image)
	}
	var files []File
	for i, m := range guestModules {
		content, err := os.ReadFile(filepath.Join(k.Modules, m+moduleSuffix))
		if err != nil {
			return nil, fmt.Errorf("module of the guest kernel: %w", err)
		}
		// The guest loads them in the order of their names.
		files = append(files, File{Path: fmt.Sprintf("lib/modules/%d-%s%s", i, m, moduleSuffix), Mode: 0o644, Content: content})
	}
	return files, nil
}

// cachedKernel finds the newest complete kernel. Unpacking ends in a rename, so
// a folder that is there is whole.
func cachedKernel(cacheDir string) (Kernel, bool) {
	found, _ := filepath.Glob(filepath.Join(cacheDir, "kernel", "*", "vmlinuz"))
	sort.Strings(found)
	for i := len(found) - 1; i >= 0; i-- {
		k := Kernel{Image: found[i], Modules: filepath.Dir(found[i])}
		if _, err := k.ModuleFiles(); err == nil {
			return k, true
		}
	}
	return Kernel{}, false
}

// fetchKernel tries the host's package lists first, then lists of its own.
func fetchKernel(ctx context.Context, cacheDir string) error {
	work, err := os.MkdirTemp(cacheDir, "fetch-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(work)
	hostErr := downloadKernel(ctx, work, nil)
	if hostErr != nil {
		private, err := privateLists(ctx, work)
		if err == nil {
			err = downloadKernel(ctx, work, private)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("by the host's package lists: %w", hostErr), fmt.Errorf("by Debian's own: %w", err))
		}
	}

	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages, want 1", len(debs))
	}
	if _, err := command(ctx, work, "dpkg-deb", "-x", debs[0], "root"); err != nil {
		return err
	}

	return keepKernel(filepath.Join(work, "root"), cacheDir)
}

// keepKernel moves the needed files of an unpacked package into the cache, as
// kernel/VERSION/.
func keepKernel(root, cacheDir string) error {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("package has %d kernel images, want 1", len(images))
	}

	version := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	kept := filepath.Join(root, "kept")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	if err := os.Rename(images[0], filepath.Join(kept, "vmlinuz")); err != nil {
		return err
	}

	err = filepath.WalkDir(filepath.Join(root, "lib", "modules", version), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, ok := strings.CutSuffix(d.Name(), moduleSuffix)
		if !ok || !slices.Contains(guestModules, name) {
			return nil
		}
		return os.Rename(path, filepath.Join(kept, d.Name()))
	})
	if err != nil {
		return err
	}

	dir := filepath.Join(cacheDir, "kernel", version)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete, or it would have been taken
		return err
	}

	return os.Rename(kept, dir)
}

// downloadKernel leaves the package that kernelPackage depends on in dir.
func downloadKernel(ctx context.Context, dir string, aptOptions []string) error {
	out, err := command(ctx, dir, "apt-cache", append(aptOptions, "depends", kernelPackage)...)
	if err != nil {
		return err
	}

	name := ""
	for line := range strings.Lines(out) {
		if dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			name = "linux-image-" + dep
		}
	}

	if name == "" {
		return fmt.Errorf("apt-cache knows no dependency of %s", kernelPackage)
	}

	_, err = command(ctx, dir, "apt-get", append(aptOptions, "-q", "-o", "APT::Sandbox::User=root", "download", name)...)
	return err
}

// privateLists fetches Debian's package list into dir and returns the options
// that make apt use it.
func privateLists(ctx context.Context, dir string) ([]string, error) {
	apt := filepath.Join(dir, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return nil, err
		}
	}

	sources := filepath.Join(apt, "sources.list")
	if err := os.WriteFile(sources, []byte(debianSources), 0o644); err != nil {
		return nil, err
	}

	options := []string{
		"-o", "Dir::Etc::SourceList=" + sources,
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(apt, "cache"),
		"-o", "APT::Architecture=amd64",
		"-o", "APT::Sandbox::User=root",
	}
	_, err := command(ctx, dir, "apt-get", append(options, "-q", "update")...)
	return options, err
}

// command runs a tool in dir and returns its output; the error contains it.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// lockCache keeps two runs from filling the cache at the same time.
func lockCache(cacheDir string) (unlock func(), err error) {
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return nil, err
	}

	f, err := os.OpenFile(filepath.Join(cacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w (choose another cache by CAPGPU_CACHE=)", err)
	}
	if err != nil {
		return nil, err
	}

	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}

	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}

	return func() { f.Close() }, nil
}
