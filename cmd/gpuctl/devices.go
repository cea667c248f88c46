package main

import (
	"context"
	"fmt"

	"capgpu/client"
)

type devicesCmd struct{}

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
}

func newDeviceJSON(d client.DeviceInfo) deviceJSON {
	return deviceJSON{d.Index, d.Name, d.State.String(), d.Backend, d.PCIAddress, d.VendorID, d.DeviceID, d.MemoryBytes, d.Facet.String(), d.Epoch, d.Recovery.String(), d.Generation, d.Suspended, d.Shortage}
}

func (devicesCmd) Run(ctx context.Context, a *app) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	devices, err := conn.Devices(ctx)
	if err != nil {
		return err
	}

	if a.json {
		out := []deviceJSON{}
		for _, d := range devices {
			out = append(out, newDeviceJSON(d))
		}
		a.printJSON(out)
		return nil
	}

	if len(devices) == 0 {
		fmt.Fprintf(a.out, "Tenant %s has no device. The operator gives it one in the policy.\n", visible(conn.Tenant()))
		return nil
	}

	rows := [][]string{}
	for _, d := range devices {
		pci := d.PCIAddress
		if pci == "" {
			pci = "-"
		}
		rows = append(rows, []string{fmt.Sprint(d.Index), d.Name, stateText(d), d.Backend, pci, bytesText(d.MemoryBytes), d.Facet.String()})
	}

	table(a.out, []string{"INDEX", "NAME", "STATE", "BACKEND", "PCI", "MEMORY", "MAY"}, rows)
	for _, d := range devices {
		if d.Shortage != "" {
			fmt.Fprintf(a.out, "The driver of %s is short of what it needs to serve, and is replaced if that goes on: %s\n", visible(d.Name), visible(d.Shortage))
		}
	}

	return nil
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
