package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// Damage is the first place at which a log was changed.
type Damage struct {
	Index  uint64 // of the record
	File   string // name of the file, without its folder; empty when that is not known
	Off    int64  // of the record's frame in the file
	Reason string
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("%s: audit record %d at %s is not what was written: %s; move the log with all its segments aside for examination and begin a new one",
		gpuerr.IO, d.Index, d.Place(), d.Reason)
}

// Place says where in which file it is.
func (d *Damage) Place() string {
	if d.File == "" {
		return fmt.Sprintf("byte %d", d.Off)
	}
	return fmt.Sprintf("byte %d of %s", d.Off, d.File)
}

// Is makes errors.Is(err, gpuerr.IO) work.
func (d *Damage) Is(target error) bool { return target == error(gpuerr.IO) }

// errTorn ends a scan at a frame that is only half there.
var errTorn = errors.New("torn")

// scanner reads a segment from its beginning and checks every byte of it.
type scanner struct {
	in        *bufio.Reader
	at        position // before the next record
	started   bool
	chainOnly bool     // began in the middle, where the tree is not known
	tornBytes int64    // with errTorn: what follows at
	tornSum   [32]byte // SHA-256 of those bytes
	frame     [maxFrameBytes]byte
}

func newScanner(in io.Reader) *scanner {
	return &scanner{in: bufio.NewReaderSize(in, 64<<10)}
}

// newScannerAt reads on from a mark.
func newScannerAt(in io.Reader, m mark) *scanner {
	s := newScanner(in)
	s.started, s.chainOnly = true, true
	s.at = position{off: m.off, size: m.index, chain: m.chain}
	return s
}

// next returns the next record; io.EOF at the clean end, errTorn at a torn one,
// and *Damage. After any error it must not be called again.
func (s *scanner) next() (ddf.AuditRecord, error) {
	if !s.started {
		if err := s.begin(); err != nil {
			return ddf.AuditRecord{}, err
		}
	}

	frameHead := s.frame[:frameHeadBytes]
	if n, err := io.ReadFull(s.in, frameHead); err != nil {
		if err == io.EOF {
			return ddf.AuditRecord{}, io.EOF
		}
		return ddf.AuditRecord{}, s.short(frameHead[:n], err)
	}

	length := int(binary.LittleEndian.Uint32(frameHead))
	if crc32.Checksum(frameHead[:4], castagnoli) != binary.LittleEndian.Uint32(frameHead[4:]) {
		if s.onlyZeros(frameHead) { // the file grew, but the data did not get to disk
			return ddf.AuditRecord{}, errTorn
		}
		return ddf.AuditRecord{}, s.damage("its length does not match the checksum of the length")
	}

	if length < fixedBytes || length > maxPayloadBytes {
		return ddf.AuditRecord{}, s.damage(fmt.Sprintf("a length of %d is impossible", length))
	}

	rest := s.frame[frameHeadBytes : frameHeadBytes+length+chainBytes]
	if n, err := io.ReadFull(s.in, rest); err != nil {
		return ddf.AuditRecord{}, s.short(s.frame[:frameHeadBytes+n], err)
	}

	payload, chain := rest[:length], rest[length:]
	if want := nextChain(s.at.chain, payload); !bytes.Equal(want[:], chain) {
		return ddf.AuditRecord{}, s.damage("it does not follow from the records before it (changed, moved, put in, or one before it taken out)")
	}

	record, err := parsePayload(payload)
	if err == nil && record.Index != s.at.size {
		err = fmt.Errorf("it says it is record %d", record.Index)
	}
	if err != nil {
		return ddf.AuditRecord{}, s.damage(err.Error())
	}

	if s.chainOnly {
		s.at.advanceChain(payload)
	} else {
		s.at.advance(payload)
	}

	if last, ok := removedUpTo(record); ok && last < s.at.segment {
		s.at.noted = max(s.at.noted, last)
	}

	return record, nil
}

// begin reads the header. Its errors are those of next.
func (s *scanner) begin() error {
	got := s.frame[:len(header)]
	n, err := io.ReadFull(s.in, got)
	switch {
	case err != nil && !isEnd(err):
		return readFailed(err)
	case string(got[:n]) == header[:n]:
		if err != nil { // the file was made, but its header did not get to disk
			return s.torn(got[:n])
		}
		s.at = start()
	case string(got[:n]) == continued:
		if err := s.beginContinued(); err != nil {
			return err
		}
	default:
		return s.damage("the file does not begin as an audit log does")
	}

	s.started = true
	return nil
}

func (s *scanner) beginContinued() error {
	// A segment gets its name when its header is on disk: it is never torn.
	b := append(make([]byte, 0, continuedFixedBytes+64*sha256.Size+chainBytes), continued...)
	for _, want := range []int{continuedFixedBytes, 0} {
		if want == 0 {
			want = continuedFixedBytes + edgeBytes(binary.LittleEndian.Uint64(b[len(continued)+8:])) + chainBytes
		}
		from := len(b)
		b = b[:want]
		if _, err := io.ReadFull(s.in, b[from:]); isEnd(err) {
			return s.damage("its header is cut off")
		} else if err != nil {
			return readFailed(err)
		}
	}

	at, wrong := parseContinued(b)
	if wrong != "" {
		return s.damage(wrong)
	}

	s.at = at
	return nil
}

func isEnd(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

func readFailed(err error) error { return gpuerr.New(gpuerr.IO, "read the audit log: %v", err) }

func (s *scanner) short(got []byte, err error) error {
	if !isEnd(err) {
		return readFailed(err)
	}
	return s.torn(got)
}

func (s *scanner) torn(got []byte) error {
	s.tornBytes, s.tornSum = int64(len(got)), sha256.Sum256(got)
	return errTorn
}

func (s *scanner) damage(reason string) error {
	return &Damage{Index: s.at.size, Off: s.at.off, Reason: reason}
}

// onlyZeros reads to the end and says whether got and all that follows is zero.
func (s *scanner) onlyZeros(got []byte) bool {
	h := sha256.New()
	for n := int64(0); ; {
		for _, b := range got {
			if b != 0 {
				return false
			}
		}
		h.Write(got)
		n += int64(len(got))
		m, err := s.in.Read(s.frame[:])
		if m == 0 && err != nil {
			s.tornBytes, s.tornSum = n, [32]byte(h.Sum(nil))
			return err == io.EOF
		}
		got = s.frame[:m]
	}
}
