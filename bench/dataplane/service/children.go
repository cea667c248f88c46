package service

import (
	"bytes"
	"fmt"
	"os"

	"capgpu/gate/gatetest"
	"capgpu/internal/proctest"
)

// Child is a driver's process, started by the manager.
type Child struct {
	proctest.Process
	Driver bool // it has registers of the function mapped; a standby has none
}

// Children are the manager's driver processes.
func (s *Service) Children() (list []Child, err error) {
	drivers, err := proctest.Children(s.ManagerPID(), "gpu-mock")
	for _, p := range drivers {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
		list = append(list, Child{p, err == nil && bytes.Contains(maps, []byte(registersName))})
	}
	return list, err
}

// Processes is the number of the manager's children that have not ended.
func (s *Service) Processes() (n int, err error) {
	all, err := proctest.Children(s.ManagerPID(), "")
	for _, c := range all {
		if c.State != "Z" {
			n++
		}
	}
	return n, err
}

// GatePID finds the process of one of the gates that have a client.
func (s *Service) GatePID() (int, error) {
	all, err := proctest.Children(s.ManagerPID(), "gpu-gate")
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

// registersName is the name of the memory for the fake function's registers.
const registersName = memfdPrefix + "capgpu-bar"

// StandbyPID finds the process of the next driver. It may be becoming the driver
// just now.
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
