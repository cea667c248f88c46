package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/manager"
)

func TestPrintFunctions(t *testing.T) {
	all := []manager.HostFunction{
		{Address: "0000:01:00.0", ID: "10de:2330", Class: "3D controller", Driver: "nvidia", Group: 14, Resets: []string{"flr", "bus"}, Candidate: true},
		{Address: "0000:02:00.0", ID: "8086:1533", Class: "class 0200", Group: -1, Refusal: "no IOMMU stands before it"},
	}

	var out bytes.Buffer
	printFunctions(&out, all)
	require.Equal(t, `ADDRESS        ID         CLASS          DRIVER  GROUP  RESET    CAN BE TAKEN
0000:01:00.0*  10de:2330  3D controller  nvidia  14     flr,bus  yes
0000:02:00.0   8086:1533  class 0200     -       -      -        no: no IOMMU stands before it
`, out.String())

	out.Reset()
	printJSON(&out, all)
	var back []manager.HostFunction
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, all, back)
	out.Reset()
	printJSON(&out, nil)
	require.Equal(t, "[]\n", out.String())
	out.Reset()
	printFunctions(&out, nil)
	require.Equal(t, "This host has no PCI functions.\n", out.String())
}

// The functions of this host are listed, and nothing is changed.
func TestListFunctions(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, runCommand([]string{"--list-functions", "--json"}, &out, &errs), errs.String())
	require.NoError(t, json.Unmarshal(out.Bytes(), &[]manager.HostFunction{}))
}
