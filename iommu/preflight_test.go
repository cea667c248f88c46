package iommu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// host is a machine as Preflight sees it: everything is in order.
func host(t *testing.T) Options {
	t.Helper()
	o := Options{Sys: sysfs(t, 5, map[string]string{"0000:01:00.0": "vfio-pci", "0000:01:00.1": ""}), Proc: t.TempDir(), Dev: t.TempDir()}
	write(t, filepath.Join(o.Sys, "module/vfio_iommu_type1/parameters/dma_entry_limit"), "65535\n")
	write(t, filepath.Join(o.Sys, "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"), "N\n")
	write(t, filepath.Join(o.Proc, "self/status"), "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n")
	write(t, filepath.Join(o.Proc, "self/limits"), "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              8388608              bytes     \n")
	write(t, filepath.Join(o.Dev, "vfio"), "")
	return o
}

func TestPreflight(t *testing.T) {
	want := Want{Groups: []int{5}, Bytes: 8 << 20, Entries: 65535}
	found := Preflight(host(t), want)
	require.NoError(t, Refused(found))
	require.Equal(t, []string{"IOMMU", "vfio", "mappings", "locked memory", "IOMMU group 5"}, func() (names []string) {
		for _, f := range found {
			names = append(names, f.What)
			require.NotEmpty(t, f.Detail, f.What)
		}
		return names
	}())

	for name, c := range map[string]struct {
		spoil func(o *Options, w *Want)
		what  string
		code  gpuerr.Code
		says  string
	}{
		"no IOMMU": {func(o *Options, w *Want) { o.Sys, w.Groups = t.TempDir(), nil }, "IOMMU", gpuerr.Unimplemented, "intel_iommu=on"},
		"an idle IOMMU": {func(o *Options, w *Want) {
			o.Sys, w.Groups = t.TempDir(), nil
			mkdir(t, filepath.Join(o.Sys, "kernel/iommu_groups"))
		}, "IOMMU", gpuerr.Unimplemented, "intel_iommu=on"},
		"forged interrupts": {func(o *Options, _ *Want) {
			write(t, filepath.Join(o.Sys, "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"), "Y\n")
		}, "IOMMU", gpuerr.Denied, "allow_unsafe_interrupts"},
		"no vfio":          {func(o *Options, _ *Want) { require.NoError(t, os.Remove(filepath.Join(o.Dev, "vfio"))) }, "vfio", gpuerr.Unimplemented, "modprobe"},
		"too many entries": {func(_ *Options, w *Want) { w.Entries++ }, "mappings", gpuerr.Denied, "65536 mappings"},
		"a lower limit": {func(o *Options, w *Want) {
			write(t, filepath.Join(o.Sys, "module/vfio_iommu_type1/parameters/dma_entry_limit"), "100\n")
			w.Entries = 101
		}, "mappings", gpuerr.Denied, "dma_entry_limit"},
		"too much memory": {func(_ *Options, w *Want) { w.Bytes++ }, "locked memory", gpuerr.Denied, "RLIMIT_MEMLOCK is 8388608"},
		"no status":       {func(o *Options, _ *Want) { require.NoError(t, os.Remove(filepath.Join(o.Proc, "self/status"))) }, "locked memory", gpuerr.IO, "status"},
		"no limits":       {func(o *Options, _ *Want) { require.NoError(t, os.Remove(filepath.Join(o.Proc, "self/limits"))) }, "locked memory", gpuerr.IO, "limits"},
		"no group":        {func(_ *Options, w *Want) { w.Groups = []int{6} }, "IOMMU group 6", gpuerr.NoDevice, "no IOMMU group 6"},
		"a shared group": {func(o *Options, _ *Want) {
			dir := filepath.Join(o.Sys, "kernel/iommu_groups/5/devices/0000:01:00.2")
			mkdir(t, dir)
			symlink(t, "/sys/bus/pci/drivers/e1000e", filepath.Join(dir, "driver"))
		}, "IOMMU group 5", gpuerr.Denied, "0000:01:00.2 (driver e1000e)"},
	} {
		o, w := host(t), want
		c.spoil(&o, &w)
		err := Refused(Preflight(o, w))
		require.ErrorIs(t, err, c.code, name)
		require.ErrorContains(t, err, c.what+": "+c.code.String(), name)
		require.ErrorContains(t, err, c.says, name)
	}
}

// Cases that lift the bound of locked memory.
func TestPreflightMemlock(t *testing.T) {
	want := Want{Bytes: 1 << 40}
	for name, spoil := range map[string]func(o Options){
		"the capability": func(o Options) { write(t, filepath.Join(o.Proc, "self/status"), "CapEff:\t0000000000004000\n") },
		"no limit": func(o Options) {
			write(t, filepath.Join(o.Proc, "self/limits"), "Max locked memory         unlimited            unlimited            bytes\n")
		},
		"no such limit": func(o Options) {
			write(t, filepath.Join(o.Proc, "self/limits"), "Max locked memory\nMax processes 5 5\n")
		},
	} {
		o := host(t)
		spoil(o)
		require.NoError(t, Refused(Preflight(o, want)), name)
	}
	// This process, with any limit of locked memory.
	for _, f := range Preflight(Options{}, Want{}) {
		if f.What == "locked memory" || f.What == "mappings" {
			require.NoError(t, f.Err)
			require.NotEmpty(t, f.Detail)
		}
	}
}
