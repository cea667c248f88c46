package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"capgpu/manager"
)

// listFunctions lists the functions that could be taken. If a part of the bus
// cannot be read, it returns an error after listing the rest.
func listFunctions(w io.Writer, asJSON bool) error {
	all, err := manager.HostFunctions()
	if asJSON {
		printJSON(w, all)
	} else {
		printFunctions(w, all)
	}
	return err
}

func printJSON(w io.Writer, all []manager.HostFunction) {
	if all == nil {
		all = []manager.HostFunction{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(all) // a list of plain values; the reader may be gone
}

func printFunctions(w io.Writer, all []manager.HostFunction) {
	if len(all) == 0 {
		fmt.Fprintln(w, "This host has no PCI functions.")
		return
	}

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tID\tCLASS\tDRIVER\tGROUP\tRESET\tCAN BE TAKEN")
	for _, f := range all {
		mark, group, can := "", "-", "yes"
		if f.Candidate {
			mark = "*"
		}
		if f.Group >= 0 {
			group = fmt.Sprint(f.Group)
		}
		if f.Refusal != "" {
			can = "no: " + f.Refusal
		}
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Address, mark, f.ID, f.Class,
			cmp.Or(f.Driver, "-"), group, cmp.Or(strings.Join(f.Resets, ","), "-"), can)
	}

	t.Flush()
}
