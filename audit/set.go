package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"capgpu/gpuerr"
)

// Set is the logs of one host. It has the methods of the log of the host itself, and beside
// that one log for each owner. An owner's records never push out those of the host or of
// another owner, because each log has its own files, its own bound and its own commits.
//
//	audit.log                    the host's
//	audit.log.d/host-NAME.log    of a part of the host
//	audit.log.d/device-NAME.log  of each device
//	audit.log.d/driver-NAME.log  of the drivers of each device
//	audit.log.d/tenant-NAME.log  of each tenant
//
// Each of them is a log by itself: Open, Read and Verify take its path. The first record
// that a Set writes to an owner's log is an "audit.run", which says how far the host's
// log was then; ReadAll puts the records of all logs in order by it.
type Set struct {
	*Log
	path string
	opts Options // of the owners' logs

	mu sync.Mutex
	// +checklocks:mu
	kept map[Owner]*Log // that are open
	// +checklocks:mu
	closed bool
}

// Owner is the owner of a log, as a part of its file's name.
type Owner string

// OfTenant is a tenant as an owner.
func OfTenant(name string) Owner { return Owner("tenant-" + name) }

// OfHost is a part of the host as an owner.
func OfHost(part string) Owner { return Owner("host-" + part) }

// OfDevice is a device as an owner.
func OfDevice(name string) Owner { return Owner("device-" + name) }

// OfDriver is the drivers of a device, one after the other, as an owner.
func OfDriver(device string) Owner { return Owner("driver-" + device) }

const (
	runKind   = "audit.run"   // of an owner's log: host=N is the number of records of the host's log
	beginKind = "audit.begin" // of the host's log: log=NAME, the log of an owner is made

	folderSuffix = ".d"
	logSuffix    = ".log"
)

var ownerForm = regexp.MustCompile(`^(host|device|driver|tenant)-[a-z0-9][a-z0-9_.:-]{0,63}$`)

// OpenSet opens the host's log at path, as Open does. The owners' logs, which Keep
// opens, are bounded by owners.
func OpenSet(path string, host, owners Options) (*Set, error) {
	l, err := Open(path, host)
	if err != nil {
		return nil, err
	}
	return &Set{Log: l, path: path, opts: owners, kept: map[Owner]*Log{}}, nil
}

// ownerPath is where the log of an owner is, beside the host's log at path.
func ownerPath(path string, o Owner) string {
	return filepath.Join(path+folderSuffix, string(o)+logSuffix)
}

// Keep opens the log of an owner, or begins one, and returns it; it is open until
// Release or Close. It reads the whole log, as Open does. It answers gpuerr.Invalid for a
// name that is none, and the errors of Open and Append.
func (s *Set) Keep(o Owner) (*Log, error) {
	if !ownerForm.MatchString(string(o)) {
		return nil, gpuerr.New(gpuerr.Invalid, "%q cannot have an audit log: the name must have the form of a tenant's or a device's", string(o))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, gpuerr.New(gpuerr.Closed, "the audit log is closed")
	}
	if l := s.kept[o]; l != nil {
		return l, nil
	}
	if err := os.Mkdir(s.path+folderSuffix, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, gpuerr.New(gpuerr.IO, "make the folder of the audit logs: %v", err)
	}

	l, err := Open(ownerPath(s.path, o), s.opts)
	if err != nil {
		return nil, err
	}
	if err := s.begin(o, l); err != nil {
		return nil, errors.Join(err, l.Close())
	}

	s.kept[o] = l
	return l, nil
}

// begin writes the first records of a run.
func (s *Set) begin(o Owner, l *Log) error {
	if l.size() == 0 {
		if _, err := s.Append(beginKind, "", "log="+string(o)+logSuffix); err != nil {
			return err
		}
		if err := s.Sync(); err != nil { // it must not outlive its record
			return err
		}
	}
	_, err := l.Append(runKind, "", fmt.Sprintf("host=%d", s.size()))
	return err
}

// Release closes the log of an owner that is no more; its files stay, and are read with
// the others.
func (s *Set) Release(o Owner) error {
	s.mu.Lock()
	l := s.kept[o]
	delete(s.kept, o)
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.Close()
}

// Close closes all logs, that of the host last.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	kept := s.kept
	s.kept = nil
	s.mu.Unlock()
	var errs []error
	for o, l := range kept {
		if err := l.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o, err))
		}
	}
	return errors.Join(append(errs, s.Log.Close())...)
}

// size is how many records the log has, on disk or not.
func (l *Log) size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end.size
}

// Paths are the files of the logs at path: path itself, and those of all owners that
// have ever had one, by name.
func Paths(path string) ([]string, error) {
	entries, err := os.ReadDir(path + folderSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, readFailed(err)
	}
	paths := []string{path}
	for _, e := range entries { // by name
		if o, ok := strings.CutSuffix(e.Name(), logSuffix); ok && ownerForm.MatchString(o) {
			paths = append(paths, filepath.Join(path+folderSuffix, e.Name()))
		}
	}
	return paths, nil
}

// Missing are the names of owners' logs that the host's log at path says it began, and
// that are not there.
func Missing(path string) ([]string, error) {
	records, err := Read(path, 0, everything)
	if err != nil {
		return nil, err
	}

	paths, err := Paths(path)
	if err != nil {
		return nil, err
	}

	var missing []string
	for _, r := range records {
		if name, ok := strings.CutPrefix(r.Detail, "log="); ok && r.Kind == beginKind && r.Tenant == "" {
			there := slices.ContainsFunc(paths, func(p string) bool { return filepath.Base(p) == name })
			if !there && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
	}

	return missing, nil
}
