package pci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"capgpu/gpuerr"
)

// Claim is a function that was taken, and its state before. It holds for that device and that
// boot: a boot undoes the effects of a claim, and may put another device there.
type Claim struct {
	Address   Address `json:"address"`
	ID        string  `json:"id"`        // vendor and device, as in Function.ID
	Boot      string  `json:"boot"`      // the boot id of the kernel that it was taken from
	Former    string  `json:"former"`    // its driver; "" when it had none
	Override  string  `json:"override"`  // its driver_override; "" when it had none
	Releasing bool    `json:"releasing"` // its release has begun
}

// journalName is the file of the journal in the folder of the state.
const journalName = "claims.json"

// The bounds of a journal that is read.
const (
	maxClaims       = 1024
	maxJournalBytes = 1 << 20
	maxDriverBytes  = 64
)

// journalFile is the form of the file.
type journalFile struct {
	Version int     `json:"version"`
	Claims  []Claim `json:"claims"`
}

const journalVersion = 2

// journal is the claims on disk. A function without an entry was never touched. Only the
// writing of the file is serialised: no call here waits for a device.
type journal struct {
	path string

	mu sync.Mutex
	// +checklocks:mu
	claims map[Address]Claim
	// +checklocks:mu
	closed bool
}

// openJournal reads the journal of a folder, if there is one.
func openJournal(dir string) (*journal, error) {
	j := &journal{path: filepath.Join(dir, journalName), claims: map[Address]Claim{}}
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "open the journal of claims: %v", err)
	}

	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJournalBytes+1))
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "read the journal of claims %s: %v", j.path, err)
	}

	claims, err := parseJournal(text)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "the journal of claims %s is damaged: %v; move it away and give stranded functions back by hand (docs/passthrough.md says how)", j.path, err)
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range claims {
		j.claims[c.Address] = c
	}

	return j, nil
}

func parseJournal(text []byte) ([]Claim, error) {
	if len(text) > maxJournalBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxJournalBytes)
	}

	var file journalFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows its end")
	}
	if file.Version != journalVersion {
		return nil, fmt.Errorf("its version is %d, not %d", file.Version, journalVersion)
	}
	if len(file.Claims) > maxClaims {
		return nil, fmt.Errorf("it has more than %d claims", maxClaims)
	}

	seen := map[Address]bool{}
	for _, c := range file.Claims {
		if seen[c.Address] {
			return nil, fmt.Errorf("%s is in it twice", c.Address)
		}
		seen[c.Address] = true
		if !driverName(c.Former) || !driverName(c.Override) {
			return nil, fmt.Errorf("the driver of %s is no driver's name", c.Address)
		}
		if !functionID.MatchString(c.ID) || !bootID.MatchString(c.Boot) {
			return nil, fmt.Errorf("the device or the boot of %s is none", c.Address)
		}
	}

	return file.Claims, nil
}

var (
	functionID = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{4}$`)
	bootID     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// driverName says whether s can be the name of a driver, or is empty. It becomes an
// element of a path, and text that is written to the kernel.
func driverName(s string) bool {
	if len(s) > maxDriverBytes || s == "." || s == ".." {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || r == '/' {
			return false
		}
	}
	return true
}

func (j *journal) get(a Address) (c Claim, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok = j.claims[a]
	return c, ok
}

func (j *journal) put(c Claim) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, had := j.claims[c.Address]
	if had && old == c {
		return nil
	}

	j.claims[c.Address] = c
	if err := j.writeLocked(); err != nil {
		delete(j.claims, c.Address)
		if had {
			j.claims[c.Address] = old
		}
		return err
	}

	return nil
}

func (j *journal) remove(a Address) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, had := j.claims[a]
	if !had {
		return nil
	}
	delete(j.claims, a)
	if err := j.writeLocked(); err != nil {
		j.claims[a] = old
		return err
	}
	return nil
}

// list is the claims in the order of their addresses.
func (j *journal) list() []Claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.listLocked()
}

// +checklocks:j.mu
func (j *journal) listLocked() []Claim {
	all := make([]Claim, 0, len(j.claims))
	for _, c := range j.claims {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y Claim) int { return x.Address.Compare(y.Address) })
	return all
}

// close ends all writing: the file may be another's from now on.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// writeLocked replaces the file: a reader finds the old one or the new one, at whatever
// moment the power fails.
//
// +checklocks:j.mu
func (j *journal) writeLocked() error {
	if j.closed {
		return gpuerr.New(gpuerr.Closed, "the journal of claims is closed; the next device-manager finds what is left in it")
	}
	text, err := json.MarshalIndent(journalFile{Version: journalVersion, Claims: j.listLocked()}, "", "  ")
	if err != nil {
		return gpuerr.New(gpuerr.Internal, "write the journal of claims: %v", err)
	}
	if err := writeWhole(j.path, append(text, '\n')); err != nil {
		return gpuerr.New(gpuerr.IO, "write the journal of claims: %v; nothing is claimed or released without it", err)
	}
	return nil
}

func writeWhole(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()

	_, err = f.Write(text)
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}

	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil // it is written; only its survival of a power failure is in doubt
	}

	defer dir.Close()
	_ = dir.Sync() // as above
	return nil
}
