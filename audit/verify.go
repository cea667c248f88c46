package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// Report is the content of a log in which every byte is as it was written.
type Report struct {
	Head      ddf.AuditHead
	First     uint64 // index of the first record that is still there; those before were rotated away
	Segments  int    // files read, the current one among them
	Bytes     int64  // of their headers and all whole records
	TornBytes int64  // after them: a record that a crash tore apart, or one just being written
	// Unnoted says that records before First are gone, but no record of the log says that it
	// removed them: another process did.
	Unnoted bool
	// Unchecked are the known heads over fewer records than First, which nothing
	// that is left can confirm or deny.
	Unchecked []ddf.AuditHead
}

// Verify reads the whole log at path with all its segments, and may do so while it is in use.
// It returns a *Damage for the first changed record, and for the first segment that is
// missing between others or does not follow from the one before. Heads that were kept
// elsewhere are checked, too: the log must hold at least as many records as each of them and
// have had its root at its size, or else records were cut off or the log was written anew.
func Verify(path string, known ...ddf.AuditHead) (Report, error) {
	known = slices.Clone(known)
	slices.SortFunc(known, func(a, b ddf.AuditHead) int { return cmp.Compare(a.Size, b.Size) })
	var report Report
	err := readLog(path, func(r *reader) (err error) {
		report, err = verify(r, known)
		return err
	})
	return report, err
}

// verify is Verify of a log that may be rotated during that.
func verify(r *reader, known []ddf.AuditHead) (report Report, err error) {
	defer func() {
		at := r.at()
		report.Head, report.Segments, report.Bytes = at.head(), r.segments(), r.readBytes
		if r.scan != nil {
			report.Bytes += r.scan.at.off
			report.TornBytes = r.scan.tornBytes
		}
		report.Unnoted = r.first != nil && at.noted+1 < r.first.segment
	}()

	err = r.begin()
	if r.first != nil {
		report.First = r.first.first
		for len(known) > 0 && known[0].Size < report.First {
			report.Unchecked, known = append(report.Unchecked, known[0]), known[1:]
		}
	}

	good := report.First // records covered by a known head that matched, or gone
	for {
		at := r.at()
		for len(known) > 0 && known[0].Size == at.size {
			if at.head() != known[0] {
				return report, &Damage{Index: good, Reason: fmt.Sprintf(
					"the root over the first %d records is not the one that was kept: one of the records from %d on was changed, and all hashes after it made anew", at.size, good)}
			}
			good = known[0].Size
			known = known[1:]
		}
		if err != nil {
			break
		}
		_, err = r.next()
	}

	switch {
	case err != io.EOF && !errors.Is(err, errTorn):
		return report, err
	case len(known) > 0:
		at := r.at()
		return report, &Damage{Index: at.size, File: filepath.Base(r.path), Off: at.off, Reason: fmt.Sprintf(
			"the log ends here, but a head over %d records was kept: the rest was cut off", known[len(known)-1].Size)}
	}

	return report, nil
}

// Read returns up to max records from index from on, across the segments, checking the log up
// to there. It leaves out records that were rotated away. Records before the first changed
// one are returned along with the *Damage.
func Read(path string, from uint64, max int) ([]ddf.AuditRecord, error) {
	if max <= 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", max)
	}

	var records []ddf.AuditRecord
	err := readLog(path, func(r *reader) error {
		for records = nil; len(records) < max; {
			record, err := r.next()
			if err == io.EOF || errors.Is(err, errTorn) {
				return nil
			}
			if err != nil {
				return err
			}
			if record.Index >= from {
				records = append(records, record)
			}
		}
		return nil
	})
	return records, err
}
