package ddfrpc

import (
	"context"
	"errors"
	"fmt"

	"capgpu/gpuerr"
	"capgpu/schema"
)

// takeAll takes all parts of the grant set, which came at once, and then asks for the
// vectors that were too many for one answer.
func (l *Link) takeAll(ctx context.Context, grants schema.DriverGrants, res schema.DriverGrants_all_Results) error {
	g, err := res.Grants()
	if err != nil {
		return err
	}
	if err := errors.Join(l.setGrants(g), l.setEngines(grants, g)); err != nil {
		return err
	}

	l.setPool(res.Pool())
	l.setLog(res.Log())
	if err := l.takeWindows(g, res); err != nil {
		return err
	}

	vectors, err := res.Vectors()
	if err != nil {
		return err
	}
	if uint64(vectors.Len()) > uint64(g.Vectors()) {
		return gpuerr.New(gpuerr.Protocol, "%d vectors came with a grant of %d", vectors.Len(), g.Vectors())
	}

	for i := range vectors.Len() {
		v := vectors.At(i)
		if err := l.addVector(v.Interrupt(), v.Memory()); err != nil {
			return fmt.Errorf("vector %d: %w", i, err)
		}
	}

	return finishAll(l.askVectors(ctx, grants, uint32(vectors.Len()), g.Vectors()))
}

// takeWindows takes the windows that came with the grant set.
func (l *Link) takeWindows(g schema.GrantSet, res schema.DriverGrants_all_Results) error {
	list, err := l.windowList(g)
	if err != nil {
		return err
	}

	windows, err := res.Windows()
	if err != nil {
		return err
	}
	if windows.Len() != list.Len() {
		return gpuerr.New(gpuerr.Protocol, "%d windows came with a grant of %d", windows.Len(), list.Len())
	}

	for i := range list.Len() {
		if err := l.takeWindow(list.At(i), windows.At(i)); err != nil {
			return fmt.Errorf("window of BAR %d: %w", list.At(i).Bar(), err)
		}
	}

	return nil
}

func (l *Link) takeWindow(m schema.MmioWindow, granted schema.GrantedWindow) error {
	w, err := l.newWindow(m)
	if err != nil {
		return err
	}
	w.setRemote(granted.Mmio())
	l.addWindow(w)
	if !granted.HasMemory() { // it can be reached by calls only
		return nil
	}
	return w.mapRegisters(granted.Memory(), granted.Bytes(), granted.Offset())
}
