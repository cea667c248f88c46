package manager

import (
	"context"
	"time"

	"capgpu/audit"
)

// startReconciler watches the kernel if the policy has a hardware function.
func (m *Manager) startReconciler() (err error) {
	open := openKernelSource
	if m.iommu = m.audit; !m.cfg.Policy.Hardware() {
		open = func() (kernelSource, error) { return nil, nil }
	} else if m.iommu, err = m.keepLog(audit.OfHost("iommu")); err != nil {
		return err
	}
	m.reconcile, err = newReconciler(m.iommu, m.log, open, m.cfg.Policy.Audit.RequireKernel)
	return err
}

// flushPatience is how long the end of an epoch waits for the kernel's account of it. Later
// events are recorded later.
const flushPatience = 5 * time.Second

// flushKernel records the kernel's actions for the function so far.
func (d *device) flushKernel() {
	if d.kernel.recorder == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if err := d.kernel.reconciler.Flush(ctx); err != nil {
		d.log.Warn("the kernel's account of an epoch comes later than its end", "epoch", d.drivers.epoch.Load(), "err", err)
	}
}
