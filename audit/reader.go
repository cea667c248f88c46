package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// removedKind is the record of segments that were removed because of Options.Keep.
const removedKind = "audit.removed"

// removedUpTo returns the last segment that r says was removed.
func removedUpTo(r ddf.AuditRecord) (uint64, bool) {
	if r.Kind != removedKind || r.Tenant != "" {
		return 0, false
	}
	var first, last uint64
	n, _ := fmt.Sscanf(r.Detail, "segments=%d-%d", &first, &last)
	return last, n == 2
}

// segmentPath is the name that a segment has once it is full.
func segmentPath(path string, number uint64) string { return fmt.Sprintf("%s.%06d", path, number) }

// segmentNumbers lists the full segments beside a log, lowest first.
func segmentNumbers(path string) ([]uint64, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		n, err := strconv.ParseUint(digits, 10, 64)
		if ok && err == nil && e.Name() == filepath.Base(segmentPath(path, n)) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// errMoved says that the log was rotated while it was being looked at.
var errMoved = errors.New("the audit log was rotated while it was read")

// maxLooks is how often a reader looks again after errMoved.
const maxLooks = 8

// reader reads a log through all its segments, oldest first, and checks every
// byte of them and how they are linked.
type reader struct {
	path    string
	current *os.File // of path; the caller's
	number  uint64   // of the current segment
	full    []uint64 // the segments before it that are there
	linked  bool     // the current segment has the name of a full one, too: see rotate

	read      int       // segments read to their end
	readBytes int64     // their bytes
	file      *os.File  // of the one being read, unless it is current
	scan      *scanner  // of the one being read
	before    position  // of the record that next returned
	first     *position // where the oldest segment that is there begins
	last      *position // the end of the segment before
}

// newReader finds the segments. current is the open file of path. The error is a *Damage if
// they do not fit together, and errMoved if they changed during the search.
func newReader(path string, current *os.File) (*reader, error) {
	r := &reader{path: path, current: current, number: 1}
	s := newScanner(io.NewSectionReader(current, 0, 1<<62))
	beginErr := s.begin() // found again when all before it was read
	if beginErr == nil {
		r.number = s.at.segment
	}

	var err error
	if r.full, err = segmentNumbers(path); err != nil {
		return nil, readFailed(err)
	}

	st, err := current.Stat()
	if err != nil {
		return nil, readFailed(err)
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(st, named) {
		return nil, errMoved
	}

	if beginErr != nil {
		if len(r.full) > 0 {
			r.number = r.full[len(r.full)-1] + 1
		}
		return r, nil
	}

	if n := len(r.full); n > 0 && r.full[n-1] == r.number {
		other, err := os.Stat(segmentPath(path, r.number))
		if err != nil {
			return nil, errMoved
		}
		if os.SameFile(st, other) {
			r.full, r.linked = r.full[:n-1], true
		}
	}

	if n := len(r.full); n > 0 && r.full[n-1] >= r.number {
		return nil, &Damage{Index: s.at.first, File: filepath.Base(path), Reason: fmt.Sprintf(
			"it is segment %d, but a file for segment %d is there", r.number, r.full[n-1])}
	}

	return r, nil
}

// close closes the files that the reader opened.
func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// name is that of the file being read.
func (r *reader) name() string {
	if r.read == len(r.full) {
		return filepath.Base(r.path)
	}
	return filepath.Base(segmentPath(r.path, r.full[r.read]))
}

// expected is the number of the segment being read, by its name.
func (r *reader) expected() uint64 {
	if r.read == len(r.full) {
		return r.number
	}
	return r.full[r.read]
}

// segments counts those that were begun.
func (r *reader) segments() int {
	if r.scan == nil {
		return r.read
	}
	return r.read + 1
}

// at is the position reached.
func (r *reader) at() position {
	switch {
	case r.scan != nil && (r.scan.started || r.last == nil):
		return r.scan.at
	case r.last != nil:
		return *r.last
	}
	return position{}
}

// begin opens the next segment and checks how it is linked to the one before.
func (r *reader) begin() error {
	in := io.Reader(io.NewSectionReader(r.current, 0, 1<<62))
	if r.last != nil && r.last.segment+1 < r.expected() {
		if numbers, err := segmentNumbers(r.path); err != nil || len(numbers) == 0 || numbers[0] > r.last.segment {
			return errMoved // the older ones are gone, too: removed while they were listed
		}
		missing := filepath.Base(segmentPath(r.path, r.last.segment+1))
		return &Damage{Index: r.last.size, File: missing, Reason: "this segment is missing, though older ones are there"}
	}

	if r.read < len(r.full) {
		f, err := os.Open(segmentPath(r.path, r.full[r.read]))
		if errors.Is(err, fs.ErrNotExist) {
			return errMoved // the log removed it, or will be found to lack it
		}
		if err != nil {
			return readFailed(err)
		}
		r.file, in = f, f
	}

	s := newScanner(in)
	if r.last != nil {
		s.at.size = r.last.size // for errors about a header
	}

	err := s.begin()
	r.scan = s
	switch {
	case err != nil:
		return r.placed(err)
	case s.at.segment != r.expected():
		return r.damage(fmt.Sprintf("by its header it is segment %d, by its name segment %d", s.at.segment, r.expected()))
	case r.last == nil:
		first := s.at
		r.first = &first
		return nil
	}

	want, _ := r.last.follow()
	switch {
	case s.at.first > want.first:
		return &Damage{Index: want.first, File: filepath.Base(segmentPath(r.path, r.last.segment)), Off: r.last.off, Reason: fmt.Sprintf(
			"the segment ends here, but the next one goes on after record %d: the rest was cut off", s.at.first-1)}
	case s.at.chain != want.chain:
		return r.damage("its header does not follow from the segment before it (one of them was changed, exchanged or made anew)")
	}

	s.at.noted = r.last.noted
	return nil
}

// next returns the next record; its errors are those of scanner.next, and errMoved.
// After any error it must not be called again.
func (r *reader) next() (ddf.AuditRecord, error) {
	for {
		if r.scan == nil {
			if err := r.begin(); err != nil {
				return ddf.AuditRecord{}, err
			}
		}
		r.before = r.scan.at
		record, err := r.scan.next()
		if err == nil {
			return record, nil
		}
		if err != io.EOF || r.read == len(r.full) {
			return ddf.AuditRecord{}, r.placed(err)
		}
		r.close()
		last := r.scan.at
		r.last, r.scan = &last, nil
		r.read++
		r.readBytes += last.off
	}
}

// placed completes an error of the scanner.
func (r *reader) placed(err error) error {
	var d *Damage
	switch {
	case errors.As(err, &d):
		d.File = r.name()
	case errors.Is(err, errTorn) && (r.read < len(r.full) || len(r.full) > 0 && !r.scan.started):
		return r.damage("the rest of the file was cut off or overwritten with zeros")
	}
	return err
}

func (r *reader) damage(reason string) error {
	return &Damage{Index: r.scan.at.size, File: r.name(), Off: r.scan.at.off, Reason: reason}
}

// readLog passes a reader of the log to look, again if the log was rotated during that.
func readLog(path string, look func(*reader) error) error {
	for n := 1; ; n++ {
		err := readOnce(path, look)
		if !errors.Is(err, errMoved) {
			return err
		}
		if n == maxLooks {
			return gpuerr.New(gpuerr.Busy, "%v, %d times; try again", err, n)
		}
	}
}

func readOnce(path string, look func(*reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return readFailed(err)
	}
	defer f.Close()
	r, err := newReader(path, f)
	if err != nil {
		return err
	}
	defer r.close()
	return look(r)
}
