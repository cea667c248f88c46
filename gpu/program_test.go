package gpu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	nouns "capgpu/program"
)

// load loads a bundle of so many bytes, all of them fill.
func load(s *Session, bytes uint64, fill byte) (Handle, *backend.ProgramInfo, error) {
	info, err := s.CreateBuffer(context.Background(), max(bytes, 1), 0)
	if err != nil {
		return 0, nil, err
	}
	defer s.DestroyBuffer(info.Handle)
	b, err := handles.Lookup[buffer](s.handles, info.Handle)
	if err != nil {
		return 0, nil, err
	}
	for i := range min(bytes, uint64(len(b.host))) {
		b.host[i] = fill
	}
	return s.LoadProgram(context.Background(), info.Handle, 0, bytes)
}

// Nothing of a bundle is read, and no memory made for it, before it is charged
// and the one before it is done.
func TestBundlesAreChargedAndLoadedOneByOne(t *testing.T) {
	ctx := context.Background()
	hand := newHandBackend()
	r := newMemRig(t, withBackend(hand))
	s, other := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.ProgramBytes, loadedBytes(100)) }), r.open("bob")
	hand.load = func(context.Context, []byte) (backend.Program, error) {
		t.Error("admitted without a charge")
		return nil, gpuerr.New(gpuerr.Internal, "")
	}
	_, _, err := load(s, 101, 0)
	require.ErrorIs(t, err, gpuerr.Quota)

	otherBuf := buf(t, other, 4096)
	hand.load = func(_ context.Context, bundle []byte) (backend.Program, error) {
		require.Equal(t, bytes.Repeat([]byte{7}, 100), bundle)
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, _, err := other.LoadProgram(ctx, otherBuf, 0, 1)
		require.ErrorIs(t, err, gpuerr.Busy)
		return nil, nouns.Refuse("SPV-1", "OpNop", 20, "not this one")
	}
	_, _, err = load(s, 100, 7)
	require.ErrorIs(t, err, gpuerr.Program)
	require.ErrorContains(t, err, "SPV-1 OpNop at byte 20")
	hand.load = nil
	_, _, err = load(s, 100, 7)
	require.NoError(t, err, "the charge was given back")
	_, _, err = load(other, 1, 7)
	require.NoError(t, err)
}

func TestLoadProgramReadsTheBuffer(t *testing.T) {
	ctx := context.Background()
	r := newMemRig(t, withBackend(newHandBackend()))
	s, other := r.open("alice"), r.open("alice")
	b := buf(t, s, 8192)
	copy(host(t, s, b)[4095:], "a bundle")
	_, info, err := s.LoadProgram(ctx, b, 4095, 8)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256([]byte("a bundle")), info.Digest)
	for name, at := range map[string][2]uint64{"beyond": {8190, 3}, "at the end": {8192, 1}, "far": {math.MaxUint64, 1}, "around": {math.MaxUint64 - 3, 8}} {
		_, _, err := s.LoadProgram(ctx, b, at[0], at[1])
		require.ErrorIs(t, err, gpuerr.Invalid, name)
	}
	_, _, err = other.LoadProgram(ctx, b, 0, 8)
	require.ErrorIs(t, err, gpuerr.Stale)
	require.NoError(t, s.DestroyBuffer(b))
	_, _, err = s.LoadProgram(ctx, b, 0, 8)
	require.ErrorIs(t, err, gpuerr.Stale)
	require.EqualValues(t, 1, s.Budget()[ledger.Programs].Used)
	require.Zero(t, s.Budget()[ledger.ProgramBytes].Reserved)
}

// Memory that is gone when the bundle is read is an error of that call.
func TestLoadFromMemoryThatIsGone(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(gone)
	r := newMemRig(t)
	s := r.open("alice")
	info, err := s.CreateBuffer(t.Context(), 4096, UsageUpload)
	require.NoError(t, err)
	b, err := handles.Lookup[buffer](s.handles, info.Handle)
	require.NoError(t, err)
	whole := b.host
	b.host = gone
	_, _, err = s.LoadProgram(t.Context(), info.Handle, 0, 8)
	require.ErrorIs(t, err, gpuerr.IO)
	b.host = whole
}

// A loaded program can be opened again by its digest, here and below, and the opened one
// ends with the loaded one.
func TestOpenByDigest(t *testing.T) {
	hand := newHandBackend()
	r := newMemRig(t, withBackend(hand))
	parent := r.open("alice", func(a *Attach) { a.Programs = []string{"p"} })
	child, err := parent.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	h, info, err := load(parent, 50, 1)
	require.NoError(t, err)
	name := fmt.Sprintf("sha256:%x", info.Digest)
	narrow, err := child.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits(), Programs: []string{"p"}})
	require.NoError(t, err)
	named, err := child.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits(), Programs: []string{name}})
	require.NoError(t, err)
	_, err = child.Restrict(Policy{Programs: []string{fmt.Sprintf("sha256:%064x", 1)}})
	require.ErrorIs(t, err, gpuerr.Denied)
	for who, s := range map[string]*Session{"itself": parent, "child": child, "named": named} {
		opened, same, err := s.OpenProgram(name)
		require.NoError(t, err, who)
		require.Equal(t, info, same)
		require.NoError(t, s.CloseProgram(opened))
	}
	for who, s := range map[string]*Session{"a list without it": narrow, "another of the tenant": r.open("alice"), "another tenant": r.open("bob")} {
		_, _, err := s.OpenProgram(name)
		require.ErrorIs(t, err, gpuerr.NoProgram, who)
	}
	for _, bad := range []string{"sha256:", name[:70], name + "0", strings.ToUpper(name), strings.Replace(name, "sha256", "sha512", 1), "sha256:" + strings.Repeat("x", 64)} {
		_, _, err := parent.OpenProgram(bad)
		require.ErrorIs(t, err, gpuerr.NoProgram, bad)
	}
	require.Equal(t, loadedBytes(50), parent.Budget()[ledger.ProgramBytes].Used)

	// The session that opened it runs it; the session that loaded it ends it.
	opened, _, err := child.OpenProgram(name)
	require.NoError(t, err)
	b := buf(t, child, 4096)
	q := r.queue(child, 16, 4096)
	q.launch(opened, whole(b))
	running := hand.nth(t, 0)
	hand.mu.Lock()
	require.Equal(t, info, hand.jobs[0].Program.Info())
	hand.mu.Unlock()
	require.NoError(t, parent.CloseProgram(h))
	require.Contains(t, hand.cancels, running)
	require.Equal(t, revokedOutcome, q.one().Outcome)
	q.launch(opened, whole(b))
	require.Equal(t, gpuerr.Stale, q.one().Code)
	_, _, err = child.OpenProgram(name)
	require.ErrorIs(t, err, gpuerr.NoProgram)
	require.Eventually(t, func() bool { return child.Budget()[ledger.Programs].Used == 0 }, 5*time.Second, time.Millisecond)
	require.NoError(t, child.CloseProgram(opened), "a handle that means nothing any more")

	// Two of one digest are two programs.
	first, _, err := load(parent, 50, 2)
	require.NoError(t, err)
	_, info, err = load(parent, 50, 2)
	require.NoError(t, err)
	require.NoError(t, parent.CloseProgram(first))
	_, _, err = child.OpenProgram(fmt.Sprintf("sha256:%x", info.Digest))
	require.NoError(t, err)
	require.NoError(t, parent.Close())
	r.idle(parent)
}
