package iommu

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

var fakeRanges = []Range{{lowestIOVA, 1 << 28}, {wideIOVA, 1 << 39}}

// The rules of every Domain, where no kernel is needed to see them kept.
func TestFake(t *testing.T) {
	f := NewFake(fakeRanges, 3)
	require.Equal(t, fakeRanges, f.Ranges())
	require.EqualValues(t, 3, f.Entries())
	host := make([]byte, 4*PageBytes)
	const at = wideIOVA

	require.NoError(t, f.Map(at, host, ReadWrite))
	for _, overlap := range []IOVA{at, at - PageBytes, at + 3*PageBytes} {
		require.ErrorIs(t, f.Map(overlap, host[:2*PageBytes], Read), gpuerr.Invalid, "%#x", overlap)
	}
	require.NoError(t, f.Map(at+4*PageBytes, host[:PageBytes], Read))
	require.NoError(t, f.Map(at-PageBytes+8*PageBytes, host, Write))
	err := f.Map(lowestIOVA, host, Read)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "iovaEntries", gpuerr.From(err).Resource)
	require.Equal(t, []Mapping{{at, host, ReadWrite}, {at + 4*PageBytes, host[:PageBytes], Read}, {at + 7*PageBytes, host, Write}}, f.Mappings())

	got, ok := f.Reach(at+5, 10, ReadWrite)
	require.True(t, ok)
	require.Same(t, &host[5], &got[0])
	require.Equal(t, 10, cap(got))
	for name, miss := range map[string]struct {
		iova   IOVA
		bytes  uint64
		access Access
	}{
		"below":       {at - 1, 1, Read},
		"over an end": {at + 4*PageBytes - 1, 2, Read},
		"read-only":   {at + 4*PageBytes, 1, Write},
		"write-only":  {at + 7*PageBytes, 1, Read},
		"between":     {at + 5*PageBytes, 1, Read},
		"wraps":       {at + 1, ^uint64(0), Read},
	} {
		_, ok := f.Reach(miss.iova, miss.bytes, miss.access)
		require.False(t, ok, name)
	}

	require.NoError(t, f.Unmap(at, 4*PageBytes))
	_, ok = f.Reach(at, 1, Read)
	require.False(t, ok)
	require.NoError(t, f.Map(at, host, Read), "an entry is free again")

	require.ErrorIs(t, f.Unmap(at, 2*PageBytes), gpuerr.Internal)
	require.ErrorIs(t, f.Lost(), gpuerr.DeviceLost)
	require.ErrorIs(t, f.Unmap(at, 4*PageBytes), gpuerr.DeviceLost, "it stays lost")
	require.NoError(t, f.Close())
	require.Empty(t, f.Mappings())
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Map(at, host, Read), gpuerr.Closed)
	require.ErrorIs(t, f.Unmap(at, 4*PageBytes), gpuerr.Closed)
}

func TestMapRefuses(t *testing.T) {
	f := NewFake(fakeRanges, 3)
	page := make([]byte, PageBytes)
	for name, c := range map[string]struct {
		iova   IOVA
		host   []byte
		access Access
	}{
		"no access":      {wideIOVA, page, 0},
		"unknown access": {wideIOVA, page, 4 | Read},
		"nothing":        {wideIOVA, nil, Read},
		"half a page":    {wideIOVA, page[:100], Read},
		"askew":          {wideIOVA + 1, page, Read},
		"below":          {0, page, Read},
		"in the hole":    {1 << 28, page, Read},
		"over the end":   {1<<28 - PageBytes, make([]byte, 2*PageBytes), Read},
		"above":          {1 << 39, page, Read},
	} {
		require.ErrorIs(t, f.Map(c.iova, c.host, c.access), gpuerr.Invalid, name)
	}
	require.NoError(t, f.Map(1<<39-PageBytes, page, Read))
}

// record remembers the operations that it observes.
type record struct {
	mu sync.Mutex
	// +checklocks:mu
	began []Op
	// +checklocks:mu
	ended []Op
	// +checklocks:mu
	errs []error
}

func (r *record) Began(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = append(r.began, op)
}

func (r *record) Ended(op Op, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.errs = append(r.ended, op), append(r.errs, err)
}

// check compares the observed operations with the requested ones.
func (r *record) check(t *testing.T, want []Op, errs []error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.ended, len(want))
	last := uint64(0)
	for i, op := range r.ended {
		require.NotZero(t, op.TID)
		require.GreaterOrEqual(t, op.Start, last)
		require.GreaterOrEqual(t, op.End, op.Start)
		last = op.End
		began := op
		began.End = 0
		require.Equal(t, began, r.began[i])
		op.TID, op.Start, op.End = 0, 0, 0
		require.Equal(t, want[i], op)
		if errs[i] == nil {
			require.NoError(t, r.errs[i])
		} else {
			require.ErrorIs(t, r.errs[i], errs[i])
		}
	}
}

func TestFakeFailsAndTells(t *testing.T) {
	f, r := NewFake(fakeRanges, 9), &record{}
	f.Observe(r)
	full, broken := errors.New("full"), errors.New("broken")
	f.Fail(func(op Op) error {
		switch {
		case op.Kind == OpMap && op.IOVA != wideIOVA:
			return full
		case op.Kind == OpUnmap:
			return broken
		}
		return nil
	})
	page := make([]byte, PageBytes)
	require.NoError(t, f.Map(wideIOVA, page, Read))
	require.ErrorIs(t, f.Map(lowestIOVA, page, Read), full)
	require.NoError(t, f.Lost(), "a failed map changes nothing")
	require.Len(t, f.Mappings(), 1)
	require.ErrorIs(t, f.Unmap(wideIOVA, PageBytes), broken)
	require.ErrorIs(t, f.Lost(), gpuerr.DeviceLost)
	require.ErrorIs(t, f.Map(wideIOVA, page, Read), gpuerr.DeviceLost)
	require.NoError(t, f.Close())
	r.check(t, []Op{
		{Kind: OpMap, Seq: 1, IOVA: wideIOVA, Bytes: PageBytes},
		{Kind: OpMap, Seq: 2, IOVA: lowestIOVA, Bytes: PageBytes},
		{Kind: OpUnmap, Seq: 3, IOVA: wideIOVA, Bytes: PageBytes},
		{Kind: OpClose, Seq: 4},
	}, []error{nil, full, broken, nil})
}

func TestOpKinds(t *testing.T) {
	require.Equal(t, []string{"attach", "map", "unmap", "close", "OpKind(0)"},
		[]string{OpAttach.String(), OpMap.String(), OpUnmap.String(), OpClose.String(), OpKind(0).String()})
}
