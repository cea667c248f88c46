package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/audit/dma"
)

// reconcileLog writes a log as device-manager does, change by change.
func reconcileLog(t *testing.T, change func(kind, detail string) []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")

	// Small segments: the records are in several files.
	log, err := audit.Open(path, audit.Options{MaxBytes: audit.MinMaxBytes})
	require.NoError(t, err)
	put := func(kind, detail string) {
		for _, d := range change(kind, detail) {
			_, err := log.Append(kind, "", d)
			require.NoError(t, err)
		}
	}

	put("manager.start", "pid=1 tenants=1")
	put(dma.KindSource, "edu0 source=iommu state=watched")
	put("driver.start", "edu0 epoch=1 path=/x")
	for i := range uint64(200) {
		s := dma.Span{IOVA: 1<<32 + i<<24, Bytes: 2 << 20}
		put(dma.KindMap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=%d", s.IOVA, s.Bytes, i))
		put(dma.KindKernel, dma.Kernel{Function: "edu0", Epoch: 1, Map: []dma.Span{s}, Unmap: []dma.Span{s}}.Detail())
		put(dma.KindUnmap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=%d", s.IOVA, s.Bytes, i))
	}

	put("driver.end", "edu0 epoch=1 freed=0")
	put("manager.stop", "pid=1")
	require.NoError(t, log.Close())
	segments, err := filepath.Glob(path + ".*")
	require.NoError(t, err)
	require.NotEmpty(t, segments)
	return path
}

func reconcile(t *testing.T, exit int, args ...string) *invocation {
	t.Helper()
	i := gpuctl(context.Background(), nil, false, append([]string{"audit", "reconcile"}, args...)...)
	require.Equal(t, exit, i.exit, "%s%s", &i.out, &i.err)
	return i
}

func TestReconcile(t *testing.T) {
	same := func(_, detail string) []string { return []string{detail} }
	path := reconcileLog(t, same)
	i := reconcile(t, 0, "--log", path)
	require.Regexp(t, `1 +edu0 +1 +ended +200 \(400\.0 MiB\) +200 \(400\.0 MiB\) +200 \(400\.0 MiB\) +200 \(400\.0 MiB\) +400 +0 +0 +0 +0\n`, i.out.String())
	require.Contains(t, i.out.String(), "device-manager and the kernel agree")
	i = reconcile(t, 0, "--log", path, "--json")
	var got reconcileJSON
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &got))
	require.True(t, got.Agrees)
	require.EqualValues(t, 400, got.Epochs[0].Matched)

	const one = "0x155000000"
	for name, c := range map[string]struct {
		kind string
		to   func(detail string) []string
		want string
	}{
		"a grant removed": {dma.KindMap, func(string) []string { return nil }, "map 0x155000000+2097152 is unexpected: the kernel did it, the manager did not"},
		"a map removed":   {dma.KindKernel, func(string) []string { return nil }, "map 0x155000000+2097152 is missing: the manager did it, the kernel did not"},
		"a map added": {dma.KindKernel, func(d string) []string {
			return []string{d, "edu0 epoch=1 map=0x7000000000+4096"}
		}, "map 0x7000000000+4096 is unexpected"},
		"a range changed": {dma.KindMap, func(d string) []string {
			return []string{strings.Replace(d, "bytes=2097152", "bytes=4096", 1)}
		}, "map 0x155000000+4096 is missing"},
		"an unmap removed": {dma.KindUnmap, func(string) []string { return nil }, "unmap 0x155000000+2097152 is unexpected"},
		"an alarm":         {dma.KindUnmap, func(d string) []string { return []string{d} }, "the manager found"},
	} {
		t.Run(name, func(t *testing.T) {
			path := reconcileLog(t, func(kind, detail string) []string {
				if kind == c.kind && strings.Contains(detail, one) {
					return c.to(detail)
				}
				return []string{detail}
			})

			if name == "an alarm" {
				log, err := audit.Open(path, audit.Options{})
				require.NoError(t, err)
				_, err = log.Append(dma.KindMismatch, "", "pid=1 tid=1 map 0x1000+4096 cause=\"\x1b[2J\"")
				require.NoError(t, err)
				require.NoError(t, log.Close())
			}

			i := reconcile(t, 1, "--log", path)
			require.Contains(t, i.out.String(), c.want)
			require.Contains(t, i.out.String(), "do NOT agree")
			require.NotContains(t, i.out.String(), "\x1b")
			i = reconcile(t, 1, "--log", path, "--json")
			require.Contains(t, i.out.String(), `"agrees": false`)
		})
	}

	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	whole[len(whole)-40] ^= 1
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	i = reconcile(t, 1, "--log", path)
	require.Contains(t, i.err.String(), "A damaged log proves nothing")
}

func TestReconcileWithoutHardware(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(path, audit.Options{})
	require.NoError(t, err)
	_, err = log.Append("manager.start", "", "pid=1 tenants=1")
	require.NoError(t, err)
	require.NoError(t, log.Close())
	i := reconcile(t, 0, "--log", path)
	require.Contains(t, i.out.String(), "there is nothing to compare")
}

// The accounts of a device are in several logs, and each run has its place. If a
// log has lost its beginning, only the complete part is judged.
func TestReconcileAcrossLogs(t *testing.T) {
	write := func(keep int, skip func(run, epoch int) bool) string {
		path := filepath.Join(t.TempDir(), "audit.log")
		for run := range 2 {
			set, err := audit.OpenSet(path, audit.Options{}, audit.Options{MaxBytes: audit.MinMaxBytes, Keep: keep})
			require.NoError(t, err)
			put := func(log interface {
				Append(kind, tenant, detail string) (uint64, error)
			}, kind, detail string) {
				_, err := log.Append(kind, "", detail)
				require.NoError(t, err)
			}

			put(set, "manager.start", "pid=1 tenants=1")
			device, err := set.Keep(audit.OfDevice("edu0"))
			require.NoError(t, err)
			driver, err := set.Keep(audit.OfDriver("edu0"))
			require.NoError(t, err)
			tenant, err := set.Keep(audit.OfTenant("a"))
			require.NoError(t, err)
			put(device, dma.KindSource, "edu0 source=iommu state=watched")
			put(tenant, dma.KindMismatch, "a tenant's log is no source")
			for epoch := 1; epoch <= 2; epoch++ {
				put(device, "driver.start", fmt.Sprintf("edu0 epoch=%d path=/x", epoch))
				for i := range uint64(100) {
					s := dma.Span{IOVA: 1<<32 + i<<24, Bytes: 2 << 20}
					put(driver, dma.KindMap, fmt.Sprintf("edu0 epoch=%d iova=%#x bytes=%d generation=%d", epoch, s.IOVA, s.Bytes, i))
					if i == 99 && skip(run, epoch) {
						continue
					}
					put(driver, dma.KindKernel, dma.Kernel{Function: "edu0", Epoch: uint64(epoch), Map: []dma.Span{s}}.Detail())
				}
				put(device, "driver.end", fmt.Sprintf("edu0 epoch=%d freed=0", epoch))
			}

			put(set, "manager.stop", "pid=1")
			require.NoError(t, set.Close())
		}

		return path
	}

	none := func(int, int) bool { return false }

	i := reconcile(t, 0, "--log", write(1000, none))
	require.Regexp(t, `(?s)1 +edu0 +1 +ended .*1 +edu0 +2 +ended .*2 +edu0 +1 +ended .*2 +edu0 +2 +ended `, i.out.String())
	i = reconcile(t, 0, "--log", write(3, none))
	require.Contains(t, i.out.String(), "partial")
	require.Regexp(t, `2 +edu0 +2 +ended `, i.out.String())
	i = reconcile(t, 1, "--log", write(3, func(run, epoch int) bool { return run == 1 && epoch == 2 }))
	require.Contains(t, i.out.String(), "run 2, edu0 epoch=2: map 0x163000000+2097152 is missing")
}
