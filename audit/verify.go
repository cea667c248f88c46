package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// Report is what a log says when every byte of it is as it was written.
type Report struct {
	Head      ddf.AuditHead
	Bytes     int64 // of the header and all whole records
	TornBytes int64 // after them: a record that a crash tore apart, or one just being written
}

// Verify reads a whole log, which may be in use. It returns a *Damage for the
// first record that is not as it was written. Heads that were kept elsewhere are
// checked, too: the log must hold at least as many records as each of them and
// have had its root at its size, or else records were cut off or the log was
// written anew.
func Verify(path string, known ...ddf.AuditHead) (Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return Report{}, gpuerr.New(gpuerr.IO, "verify the audit log: %v", err)
	}
	defer f.Close()
	known = slices.Clone(known)
	slices.SortFunc(known, func(a, b ddf.AuditHead) int { return compare(a.Size, b.Size) })
	s := newScanner(f)
	var good uint64 // records covered by a known head that matched
	for {
		for len(known) > 0 && known[0].Size == s.at.size {
			if s.at.head() != known[0] {
				return report(s), &Damage{Index: good, Off: 0, Reason: fmt.Sprintf(
					"the root over the first %d records is not the one that was kept: one of the records from %d on was changed, and all hashes after it made anew", s.at.size, good)}
			}
			good = known[0].Size
			known = known[1:]
		}
		_, err := s.next()
		switch {
		case err == nil:
			continue
		case err != io.EOF && !errors.Is(err, errTorn):
			return report(s), err
		case len(known) > 0:
			return report(s), &Damage{Index: s.at.size, Off: s.at.off, Reason: fmt.Sprintf(
				"the log ends here, but a head over %d records was kept: the rest was cut off", known[len(known)-1].Size)}
		}
		return report(s), nil
	}
}

func report(s *scanner) Report {
	return Report{Head: s.at.head(), Bytes: s.at.off, TornBytes: s.tornBytes}
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Read returns up to max records from index from on, checking the log up to
// there. Records before the first that is not as it was written are returned
// along with the *Damage.
func Read(path string, from uint64, max int) ([]ddf.AuditRecord, error) {
	if max <= 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", max)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "read the audit log: %v", err)
	}
	defer f.Close()
	s := newScanner(f)
	var records []ddf.AuditRecord
	for len(records) < max {
		r, err := s.next()
		if err == io.EOF || errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return records, err
		}
		if r.Index >= from {
			records = append(records, r)
		}
	}
	return records, nil
}
