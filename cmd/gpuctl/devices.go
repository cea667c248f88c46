package main

import (
	"context"
	"fmt"

	"capgpu/client"
)

type devicesCmd struct {
	Describe bool `help:"Tell what else devices say of themselves. It opens a session on each that is ready."`
}

type deviceJSON struct {
	Index       uint32 `json:"index"`
	Name        string `json:"name"`
	State       string `json:"state"`
	Backend     string `json:"backend"`
	PCIAddress  string `json:"pciAddress,omitempty"`
	VendorID    uint16 `json:"vendorId"`
	DeviceID    uint16 `json:"deviceId"`
	MemoryBytes uint64 `json:"memoryBytes"`
	Facet       string `json:"facet"`
	Epoch       uint64 `json:"epoch"`
	Recovery    string `json:"recovery"`
	Generation  uint32 `json:"generation"`
	Suspended   bool   `json:"suspended"`
	Shortage    string `json:"shortage,omitempty"`

	Description *descriptionJSON `json:"description,omitempty"` // with --describe, of a device that answers
}

// descriptionJSON is what a device says of itself to a session.
type descriptionJSON struct {
	GlobalMemAlignment uint32 `json:"globalMemAlignment"`
	MaxBindingBytes    uint64 `json:"maxBindingBytes"` // 0: no bound
	LocalBytes         uint64 `json:"localBytes"`      // memory of its own
	ComputeUnits       uint32 `json:"computeUnits"`
	Deterministic      bool   `json:"deterministic"`
}

func newDeviceJSON(d client.DeviceInfo) deviceJSON {
	return deviceJSON{
		Index: d.Index, Name: d.Name, State: d.State.String(), Backend: d.Backend, PCIAddress: d.PCIAddress, VendorID: d.VendorID, DeviceID: d.DeviceID,
		MemoryBytes: d.MemoryBytes, Facet: d.Facet.String(), Epoch: d.Epoch, Recovery: d.Recovery.String(), Generation: d.Generation,
		Suspended: d.Suspended, Shortage: d.Shortage,
	}
}

func (c *devicesCmd) Run(ctx context.Context, a *app) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	devices, err := conn.Devices(ctx)
	if err != nil {
		return err
	}

	said := make([]*descriptionJSON, len(devices)) // nil: nothing
	silent := make([]error, len(devices))
	if c.Describe {
		for i, d := range devices {
			said[i], silent[i] = describe(ctx, conn, d)
		}
	}

	if a.json {
		out := []deviceJSON{}
		for i, d := range devices {
			row := newDeviceJSON(d)
			row.Description = said[i]
			out = append(out, row)
		}
		a.printJSON(out)
		return nil
	}

	if len(devices) == 0 {
		fmt.Fprintf(a.out, "Tenant %s has no device. The operator gives it one in the policy.\n", visible(conn.Tenant()))
		return nil
	}

	header := []string{"INDEX", "NAME", "STATE", "BACKEND", "PCI", "MEMORY", "MAY"}
	if c.Describe {
		header = append(header, "OWN MEMORY", "ALIGN", "UNITS", "DETERMINISTIC")
	}
	rows := [][]string{}
	for i, d := range devices {
		pci := d.PCIAddress
		if pci == "" {
			pci = "-"
		}
		row := []string{fmt.Sprint(d.Index), d.Name, stateText(d), d.Backend, pci, bytesText(d.MemoryBytes), d.Facet.String()}
		if c.Describe {
			row = append(row, said[i].row()...)
		}
		rows = append(rows, row)
	}

	table(a.out, header, rows)
	for i, d := range devices {
		if silent[i] != nil {
			fmt.Fprintf(a.out, "%s does not describe itself: %s\n", visible(d.Name), visible(silent[i].Error()))
		}
		if d.Shortage != "" {
			fmt.Fprintf(a.out, "The driver of %s is short of what it needs to serve, and is replaced if that goes on: %s\n", visible(d.Name), visible(d.Shortage))
		}
	}

	return nil
}

// describe opens a session and asks. It returns nil and no error for a device that would not
// answer at the moment.
func describe(ctx context.Context, conn *client.Conn, d client.DeviceInfo) (*descriptionJSON, error) {
	if d.State != client.Ready || d.Suspended {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s, err := conn.Open(ctx, d.Index)
	if err != nil {
		return nil, err
	}
	said, err := s.Describe(ctx)
	if e := s.Close(ctx); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return &descriptionJSON{said.GlobalMemAlignment, said.MaxBindingBytes, said.LocalBytes, said.ComputeUnits, said.Deterministic}, nil
}

// row is the columns of --describe. A dash is not known.
func (d *descriptionJSON) row() []string {
	if d == nil {
		return []string{"-", "-", "-", "-"}
	}
	own, units, same := "-", "-", "no"
	if d.LocalBytes > 0 {
		own = bytesText(d.LocalBytes)
	}
	if d.ComputeUnits > 0 {
		units = countText(uint64(d.ComputeUnits))
	}
	if d.Deterministic {
		same = "yes"
	}
	return []string{own, bytesText(uint64(d.GlobalMemAlignment)), units, same}
}

// stateText mentions the epoch if there was an earlier driver, with the generation
// if one was upgraded, and the current recovery step while the device is ready.
func stateText(d client.DeviceInfo) string {
	text := d.State.String()
	if d.State == client.Ready && d.Recovery != client.RecoveryNone {
		text += ", " + d.Recovery.String()
	}
	if d.Suspended {
		text += ", suspended"
	}
	if d.Shortage != "" {
		text += ", short"
	}

	switch {
	case d.Generation > 1:
		text += fmt.Sprintf(" (epoch %d, generation %d)", d.Epoch, d.Generation)
	case d.Epoch > 1:
		text += fmt.Sprintf(" (epoch %d)", d.Epoch)
	}

	return text
}
