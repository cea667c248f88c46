package attack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/bench/dataplane/service"
	"capgpu/bench/dataplane/wire"
	"capgpu/control"
)

// wash fills the audit logs: it holds all the sessions that it can have and asks
// for more, and now and then it closes one and opens another.
func wash(ctx context.Context, a *attacker) error {
	broker, err := wire.Dial(ctx, a.socket)
	if err != nil {
		return err
	}
	defer broker.Close()

	var held []int
	for ctx.Err() == nil {
		m, err := broker.Call(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{}.AppendTo(nil), nil)
		a.answered(err)
		if err == nil {
			held = append(held, m.FDs...)
		}
		if len(held) > 0 && a.random.IntN(64) == 0 {
			unix.Close(held[0])
			held = held[1:]
		}
	}

	for _, fd := range held {
		unix.Close(fd)
	}

	return nil
}

// pushedOut reports which of the audit logs is damaged, and which has lost records
// that no tenant may push out: those of the host and of its devices. It is "" if
// all is well.
func pushedOut(svc *service.Service) (what string, err error) {
	paths, err := audit.Paths(svc.AuditPath())
	if err != nil {
		return "", err
	}

	var all []string
	for i, path := range paths {
		name := filepath.Base(path)
		report, err := audit.Verify(path)
		switch {
		case err != nil:
			all = append(all, fmt.Sprintf("%s: %v", name, err))
		case report.First > 0 && (i == 0 || strings.HasPrefix(name, string(audit.OfDevice("")))):
			all = append(all, fmt.Sprintf("%d records of %s are gone", report.First, name))
		}
	}

	return strings.Join(all, "; "), nil
}
