package service

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"capgpu/gate/gatetest"
)

// Child is a process of the manager's that runs, or has run.
type Child struct {
	PID    int
	State  string // as ps has it: S, R, Z …
	Driver bool   // of Children: it has registers of the function mapped; a standby has none
}

// Children are the manager's driver processes.
func (s *Service) Children() (list []Child, err error) {
	list, err = s.children("gpu-mock")
	for i := range list {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", list[i].PID))
		list[i].Driver = err == nil && bytes.Contains(maps, []byte(registersName))
	}
	return list, err
}

// Processes is how many the manager has started that have not ended.
func (s *Service) Processes() (n int, err error) {
	all, err := s.children("")
	for _, c := range all {
		if c.State != "Z" {
			n++
		}
	}
	return n, err
}

// GatePID finds the process of one of the gates that have a client.
func (s *Service) GatePID() (int, error) {
	all, err := s.children("gpu-gate")
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if gatetest.HasClient(c.PID) {
			return c.PID, nil
		}
	}
	return 0, fmt.Errorf("device-manager (%d) has no gpu-gate with a client; it said:\n%s", s.ManagerPID(), s.log)
}

// children are the manager's processes of each program whose name begins so.
func (s *Service) children(name string) (list []Child, err error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // not a process, or one that has ended
		}
		var c Child
		var parent int
		open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if open < 0 || end < open || !strings.HasPrefix(string(text[open+1:end]), name) {
			continue
		}
		if _, err := fmt.Sscan(string(text[:open]), &c.PID); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(text[end+1:]), &c.State, &parent); err == nil && parent == s.ManagerPID() {
			list = append(list, c)
		}
	}
	return list, nil
}

// registersName is that of the memory which stands for the fake function's registers.
const registersName = memfdPrefix + "capgpu-bar"

// StandbyPID finds the process that is to be the next driver. It may be one that
// becomes the driver just now.
func (s *Service) StandbyPID() (int, error) { return s.oneChild(false) }

// ServingPID finds the process that has the function's registers: the driver.
func (s *Service) ServingPID() (int, error) { return s.oneChild(true) }

func (s *Service) oneChild(driver bool) (int, error) {
	list, err := s.Children()
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if c.State != "Z" && c.Driver == driver {
			return c.PID, nil
		}
	}
	return 0, fmt.Errorf("device-manager (%d) has no such gpu-mock; it said:\n%s", s.ManagerPID(), s.log)
}
