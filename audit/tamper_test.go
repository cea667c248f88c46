package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
)

// frames lists where each frame of a log begins, and its end.
func frames(t testing.TB, b []byte) []int64 {
	t.Helper()
	s := newScanner(bytes.NewReader(b))
	offs := []int64{int64(len(header))}
	for {
		if _, err := s.next(); err != nil {
			return offs
		}
		offs = append(offs, s.at.off)
	}
}

func requireDamage(t testing.TB, b []byte, index uint64, off int64, what string, args ...any) {
	t.Helper()
	_, err := Verify(put(t, b))
	var damage *Damage
	require.True(t, errors.As(err, &damage), append([]any{what + ": %v"}, append(args, err)...)...)
	require.Equal(t, [2]any{index, off}, [2]any{damage.Index, damage.Off}, append([]any{what}, args...)...)
}

// TestEveryChangedByteIsFound changes each byte of a log, in three ways.
func TestEveryChangedByteIsFound(t *testing.T) {
	_, b := smallLog(t)
	offs := frames(t, b)
	require.Len(t, offs, 6)
	for i := range b {
		index := 0
		for index+1 < len(offs)-1 && int64(i) >= offs[index+1] {
			index++
		}
		off := offs[index]
		if i < len(header) {
			index, off = 0, 0
		}
		for _, flip := range []byte{1, 0x80, 0xff} {
			changed := bytes.Clone(b)
			changed[i] ^= flip
			requireDamage(t, changed, uint64(index), off, "byte %d ^ %#x", i, flip)
		}
	}
}

func TestMovedAndMissingRecordsAreFound(t *testing.T) {
	_, b := smallLog(t)
	offs := frames(t, b)
	frame := func(i int) []byte { return b[offs[i]:offs[i+1]] }
	join := func(order ...int) []byte {
		out := []byte(header)
		for _, i := range order {
			out = append(out, frame(i)...)
		}
		return out
	}
	require.Equal(t, b, join(0, 1, 2, 3, 4))
	requireDamage(t, join(1, 2, 3, 4), 0, offs[0], "first taken out")
	requireDamage(t, join(0, 1, 3, 4), 2, offs[2], "one taken out")
	requireDamage(t, join(0, 2, 1, 3, 4), 1, offs[1], "two exchanged")
	requireDamage(t, join(0, 1, 1, 2, 3, 4), 2, offs[2], "one doubled")
	requireDamage(t, append(join(0, 1, 2, 3, 4), frame(0)...), 5, offs[5], "one put at the end")
	requireDamage(t, append(bytes.Clone(b), "garbage!"...), 5, offs[5], "garbage put at the end")
}

// TestCutAnywhereIsRecovered cuts a log at every byte, as a crash in mid-write does:
// verification reports a torn end and no tampering, and Open continues with all whole records
// and a note.
func TestCutAnywhereIsRecovered(t *testing.T) {
	_, b := smallLog(t)
	offs := frames(t, b)
	for n := range len(b) + 1 {
		for _, zeros := range []int{0, 100} { // the file may have grown before its data came
			whole := 0
			for whole+1 < len(offs) && offs[whole+1] <= int64(n) {
				whole++
			}
			atEnd := int64(n) == offs[whole]
			if zeros > 0 && !atEnd {
				continue
			}
			path := put(t, append(bytes.Clone(b[:n]), make([]byte, zeros)...))
			report, err := Verify(path)
			require.NoError(t, err, "cut at %d", n)
			require.EqualValues(t, whole, report.Head.Size)
			torn := int64(n+zeros) - report.Bytes
			require.Equal(t, torn, report.TornBytes, "cut at %d", n)
			if n >= len(header) {
				require.Equal(t, offs[whole], report.Bytes)
			}

			l, err := Open(path, Options{})
			require.NoError(t, err)
			_, err = l.Append("next", "", "")
			require.NoError(t, err)
			require.NoError(t, l.Close())
			records, err := Read(path, uint64(whole), 10)
			require.NoError(t, err)
			if torn > 0 {
				require.Equal(t, "audit.torn", records[0].Kind)
				records = records[1:]
			}
			require.Len(t, records, 1)
			require.Equal(t, "next", records[0].Kind)
			report, err = Verify(path)
			require.NoError(t, err)
			require.Zero(t, report.TornBytes)
		}
	}
}

// TestKeptHeadsFindRewriting: what hashes within the file cannot show.
func TestKeptHeadsFindRewriting(t *testing.T) {
	path, b := smallLog(t)
	offs := frames(t, b)
	var heads []ddf.AuditHead
	for _, off := range offs {
		report, err := Verify(put(t, b[:off]))
		require.NoError(t, err)
		heads = append(heads, report.Head)
	}
	_, err := Verify(path, heads...)
	require.NoError(t, err)
	_, err = Verify(path, heads[5], heads[0], heads[3])
	require.NoError(t, err)

	var damage *Damage
	_, err = Verify(put(t, b[:offs[3]]), heads[4])
	require.True(t, errors.As(err, &damage))
	require.EqualValues(t, 3, damage.Index)
	require.ErrorContains(t, err, "cut off")

	// A forger with write access makes the log anew, with record 3 different.
	p := start()
	forged := []byte(header)
	records, err := Read(path, 0, 10)
	require.NoError(t, err)
	for _, r := range records {
		if r.Index == 3 {
			r.Detail = "nothing to see"
		}
		forged = appendFrame(forged, &p, r)
	}
	fake := put(t, forged)
	_, err = Verify(fake)
	require.NoError(t, err, "by itself it looks well")
	_, err = Verify(fake, heads[3])
	require.NoError(t, err)
	_, err = Verify(fake, heads[2], heads[5])
	require.True(t, errors.As(err, &damage))
	require.EqualValues(t, 2, damage.Index)
	require.ErrorContains(t, err, "one of the records from 2 on was changed")
}

// TestImpossibleRecords: frames with right hashes that no writer makes.
func TestImpossibleRecords(t *testing.T) {
	for name, payload := range map[string][]byte{
		"wrong index":     appendPayload(nil, ddf.AuditRecord{Index: 9, Kind: "k"}),
		"empty kind":      appendPayload(nil, ddf.AuditRecord{}),
		"text lengths":    append(appendPayload(nil, ddf.AuditRecord{Kind: "k"}), 'x'),
		"too long detail": appendPayload(nil, ddf.AuditRecord{Kind: "k", Detail: string(make([]byte, MaxDetailBytes+1))}),
		"too long":        make([]byte, maxPayloadBytes+1),
		"too short":       make([]byte, fixedBytes-1),
	} {
		t.Run(name, func(t *testing.T) {
			p := start()
			b := append([]byte(header), make([]byte, frameHeadBytes)...)
			putFrameHead(b[len(header):], len(payload))
			p.advanceChain(payload)
			b = append(append(b, payload...), p.chain[:]...)
			requireDamage(t, b, 0, int64(len(header)), name)
			_, err := Open(put(t, b), Options{})
			require.Error(t, err, "a damaged log must not be continued")
		})
	}
}

// FuzzScan gives the reader arbitrary files. It must not panic, and it must accept only files
// that a writer would have written.
func FuzzScan(f *testing.F) {
	_, b := smallLog(f)
	f.Add(b)
	f.Add(b[:len(b)-7])
	f.Add([]byte(header))
	p := start()
	appendFrame(nil, &p, ddf.AuditRecord{Kind: "k"})
	p, second := p.follow()
	f.Add(appendFrame(second, &p, ddf.AuditRecord{Index: 1, Kind: "k"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newScanner(bytes.NewReader(b))
		if s.begin() != nil {
			return
		}
		p, out := s.at, bytes.Clone(b[:s.at.off]) // begin has made the header again
		for {
			r, err := s.next()
			if err != nil {
				break
			}
			out = appendFrame(out, &p, r)
		}
		require.Equal(t, b[:s.at.off], out)
		require.Equal(t, s.at.head(), p.head())
	})
}

func TestGolden(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "golden.log"))
	require.NoError(t, err)
	s := newScanner(bytes.NewReader(b))
	p := start()
	out := []byte(header)
	for range 2 {
		r, err := s.next()
		require.NoError(t, err)
		out = appendFrame(out, &p, r)
	}
	require.Equal(t, b, out)
	report, err := Verify(filepath.Join("testdata", "golden.log"))
	require.NoError(t, err)
	require.EqualValues(t, 2, report.Head.Size)
	records, err := Read(filepath.Join("testdata", "golden.log"), 0, 10)
	require.NoError(t, err)
	require.Equal(t, `0 2026-01-02T03:04:05.000000006Z grant mock0 bar 0`, Format(records[0]))
	require.Equal(t, `1 2026-01-02T03:04:05.000000007Z session.open tenant=a "id 1\n"`, Format(records[1]))
}

// TestGoldenSegments: the same for a full segment and the one after it.
func TestGoldenSegments(t *testing.T) {
	path := filepath.Join("testdata", "rotated.log")
	p, full := start(), []byte(header)
	at := time.Unix(0, 1767323045000000006)
	for i, detail := range []string{"mock0 bar 0", "mock0 bar 1", "mock0 bar 2"} {
		full = appendFrame(full, &p, ddf.AuditRecord{Index: uint64(i), Time: at, Kind: "grant", Detail: detail})
	}
	p, current := p.follow()
	require.Len(t, current, 44+32+2*32+32)
	current = appendFrame(current, &p, ddf.AuditRecord{Index: 3, Time: at, Kind: "session.open", Tenant: "a", Detail: "id 1"})
	for name, want := range map[string][]byte{segmentPath(path, 1): full, path: current} {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, want, b, name)
	}
	report, err := Verify(path)
	require.NoError(t, err)
	require.Equal(t, p.head(), report.Head)
	require.Equal(t, 2, report.Segments)
}
