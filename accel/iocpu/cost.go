package iocpu

import (
	"encoding/json"
	"fmt"
)

// Hop is a node and when it was reached, in nanoseconds.
type Hop struct {
	Node string
	At   uint64
}

// MarshalJSON is ["host", 0].
func (h Hop) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Node, h.At}) }

func ceil(n, rate uint64) uint64 { return (n + rate - 1) / rate }

// cross is what a link takes.
func (l Link) cross(p Place, bytes uint64) uint64 {
	return l.Fixed + l.PerCube*p.Cube + l.PerPE*p.PE + ceil(bytes, l.Rate)
}

// out is the way from the host to an end of a PE, which it reaches at the last hop.
func (k *Costs) out(p Place, end string, bytes uint64) []Hop {
	hops := []Hop{{"host", 0}}
	cube := fmt.Sprintf("sip%d.cube%d", p.Sip, p.Cube)
	at := uint64(0)
	for i, n := range []struct {
		node     string
		overhead uint64 // of the node before
	}{
		{fmt.Sprintf("sip%d.pcie_ep", p.Sip), 0},
		{fmt.Sprintf("sip%d.io_cpu", p.Sip), k.PCIe},
		{cube + ".m_cpu", k.IOCPU},
		{fmt.Sprintf("%s.pe%d.%s", cube, p.PE, end), k.MCPU},
	} {
		at += n.overhead + k.Links[i].cross(p, bytes)
		hops = append(hops, Hop{n.node, at})
	}
	return hops
}

// up is the way from the end, which it leaves at a time, to the io_cpu.
func (k *Costs) up(hops []Hop, p Place, leaves, bytes uint64) []Hop {
	m := leaves + k.Links[3].cross(p, bytes)
	io := m + k.MCPU + k.Links[2].cross(p, bytes)
	return append(hops, Hop{hops[3].Node, m}, Hop{hops[2].Node, io})
}

// home is the rest of the way from the io_cpu, where it arrived with the last hop.
func (k *Costs) home(hops []Hop, p Place, bytes uint64) []Hop {
	pcie := hops[len(hops)-1].At + k.IOCPU + k.Links[1].cross(p, bytes)
	return append(hops, Hop{hops[1].Node, pcie}, Hop{"host", pcie + k.PCIe + k.Links[0].cross(p, bytes)})
}

// memory is the way of a write or a read: with so many bytes out, an access, and so many back.
func (k *Costs) memory(p Place, kind string, access, out, back uint64) []Hop {
	overhead, rate := k.HBM, k.HBMRate
	if kind == tcm {
		overhead, rate = k.TCM, k.TCMRate
	}
	hops := k.out(p, kind, k.Control+out)
	leaves := hops[len(hops)-1].At + overhead + ceil(access, rate)
	return k.home(k.up(hops, p, leaves, k.Control+back), p, k.Control+back)
}

// Ran is a PE that ran a kernel.
type Ran struct {
	Cube  uint64 `json:"cube"`
	PE    uint64 `json:"pe"`
	Start uint64 `json:"start_ns"`
	End   uint64 `json:"end_ns"`
	OK    bool   `json:"ok"`
}

// launch is the way of a launch by the PE that answers last, of equals the lowest, and when each ran.
func (k *Costs) launch(pes []Place, bytes []uint64, code uint64) (hops []Hop, ran []Ran) {
	var last Place
	for i, p := range pes {
		way := k.out(p, "pe_cpu", k.Control)
		start := way[len(way)-1].At + k.PECPU
		end := start + k.ExecFixed + ceil(bytes[i], k.ExecRate) + ceil(code, k.ExecRate)
		ran = append(ran, Ran{Cube: p.Cube, PE: p.PE, Start: start, End: end})
		way = k.up(way, p, end, k.Control)
		if hops == nil || way[len(way)-1].At > hops[len(hops)-1].At {
			hops, last = way, p
		}
	}
	return k.home(hops, last, k.Control), ran
}
