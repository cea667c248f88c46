package main

import (
	"fmt"
	"strings"

	"capgpu/cmd/gpuctl/hostcheck"
	"capgpu/internal/pci"
)

type doctorCmd struct {
	Address []string `arg:"" optional:"" help:"PCI functions to check, like 0000:01:00.0. Default: every display controller and accelerator." placeholder:"ADDRESS"`
}

// Run checks this host; it needs no service.
func (c doctorCmd) Run(a *app) error {
	var addresses []pci.Address
	for _, s := range c.Address {
		address, err := pci.ParseAddress(s)
		if err != nil {
			return usagef("%.40q is no PCI address; write it like 0000:01:00.0 (lspci -D lists them)", s)
		}
		addresses = append(addresses, address)
	}
	return a.diagnose(hostcheck.ThisHost(), addresses)
}

func (a *app) diagnose(h hostcheck.Host, addresses []pci.Address) error {
	checks := hostcheck.Run(h, addresses)
	good := hostcheck.Good(checks)
	if a.json {
		a.printJSON(struct {
			Good   bool              `json:"good"`
			Checks []hostcheck.Check `json:"checks"`
		}{good, checks})
	} else {
		a.printChecks(checks, good)
	}
	if !good {
		return &failedWork{exitFailed}
	}
	return nil
}

// doctorColumns is the width of a line of text.
const doctorColumns = 100

func (a *app) printChecks(checks []hostcheck.Check, good bool) {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}

	const statusWidth = len(hostcheck.Unknown) + 2
	indent := strings.Repeat(" ", statusWidth+width+2)
	changes := 0
	for _, c := range checks {
		if c.Status == hostcheck.Change {
			changes++
		}
		lines := wrap(visible(c.Found), doctorColumns-len(indent))
		fmt.Fprintf(a.out, "%-*s%-*s%s\n", statusWidth, c.Status, width+2, visible(c.Name), strings.Join(lines, "\n"+indent))
		if c.Do != "" {
			lines := wrap(visible(c.Do), doctorColumns-len(indent)-3)
			fmt.Fprintf(a.out, "%s-> %s\n", indent, strings.Join(lines, "\n   "+indent))
		}
	}

	if good {
		fmt.Fprintln(a.out, "\nThis host has what real hardware needs.")
		return
	}

	fmt.Fprintf(a.out, "\nTo use real hardware on this host, %s to be changed (docs/passthrough.md). Developer mode (device-manager --dev) needs none of it.\n", thingsText(changes))
}

func thingsText(n int) string {
	if n == 1 {
		return "1 thing is"
	}
	return fmt.Sprintf("%d things are", n)
}

// wrap breaks a text between words, so that no line is longer than width, unless a
// single word is.
func wrap(s string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(s) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
