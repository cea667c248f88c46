package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"capgpu/client"
	"capgpu/conformance"
	"capgpu/internal/proctest"
)

// OtherVersion is a program in Options.Bin: gpu-mock with another version of the
// state of live upgrades (go build -ldflags "-X main.stateVersion=99").
const OtherVersion = "gpu-mock-of-another-version"

// CannotUpgrade implements conformance.Stack.
func (s *Stack) CannotUpgrade() string {
	if len(s.o.Functions) > 0 {
		return "a function on hardware has one owner of its registers and interrupts at a time: its driver is refused for an upgrade, typed"
	}
	if s.o.Discrete {
		return "memory of the device's own cannot be handed over: an upgrade is refused, typed"
	}
	return ""
}

// Upgrade implements conformance.Stack, as an operator does it: it installs the
// successor and then requests the upgrade.
func (s *Stack) Upgrade(ctx context.Context, device uint32, fits bool) (err error) {
	if !fits {
		if err := s.install(OtherVersion); err != nil {
			return err
		}
		defer func() {
			if ierr := s.install("gpu-mock"); ierr != nil {
				err = fmt.Errorf("%v; install the right driver again: %v", err, ierr)
			}
		}()
	}

	admin, err := client.DialAdmin(ctx, client.AdminSocket(s.socket(conformance.Alice)))
	if err != nil {
		return err
	}
	defer admin.Close()

	pid, err := s.Driver(ctx, device)
	if err != nil {
		return err
	}
	if _, err = admin.Upgrade(ctx, s.device.names()[device]); err == nil {
		s.over(device, pid)
	}

	return err
}

// driver is the path of the mock's driver.
func (s *Stack) driver() string { return s.path("gpu-mock") }

// install replaces the driver's program, for the next driver that starts.
func (s *Stack) install(program string) error {
	content, err := os.ReadFile(filepath.Join(s.o.Bin, program))
	if err != nil {
		return err
	}
	next := s.driver() + ".next"
	if err := proctest.WriteProgram(next, content); err != nil {
		return err
	}
	return os.Rename(next, s.driver())
}
