package iocpu

import (
	"io"

	"capgpu/gpuerr"
)

// Topology is the machine that the endpoint plays.
type Topology struct {
	Sips    []Sip
	HBM     uint64 // bytes of a PE
	TCM     uint64 // likewise
	TCMBase uint64 // its first address; HBM is at 0
	Costs   Costs
}

// Sip is one device of the contract.
type Sip struct {
	Device           uint32 // of the tenant; several sips may share one
	Cubes, PEsOfCube uint64
}

// Costs are integers of nanoseconds.
type Costs struct {
	Links [4]Link // host to pcie_ep, to io_cpu, to m_cpu, to the end
	PCIe, IOCPU, MCPU, PECPU,
	HBM, TCM uint64 // overheads
	HBMRate, TCMRate uint64 // bytes per ns
	Control          uint64 // bytes of a message without data
	ExecFixed        uint64
	ExecRate         uint64 // bytes per ns
}

// Link is what crossing it takes.
type Link struct{ Fixed, PerCube, PerPE, Rate uint64 }

const (
	maxTopology = 1 << 20
	maxSips     = 16
	maxPEs      = 64      // of a cube, and cubes of a sip
	maxMemory   = 1 << 40 // bytes
	maxNanos    = 1 << 32
)

// ParseTopology reads a topology file: one closed JSON object (docs/iocpu.md).
func ParseTopology(r io.Reader) (t Topology, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxTopology+1))
	if err != nil {
		return t, err
	}
	if len(text) > maxTopology {
		return t, gpuerr.New(gpuerr.Invalid, "the topology has more than %d bytes", maxTopology)
	}
	o := parseObject(text, "", &err)
	for i, text := range o.list("sips") {
		s := o.item("sips", i, text)
		t.Sips = append(t.Sips, Sip{Device: uint32(s.within("device", 0, 1<<31)), Cubes: s.within("cubes", 1, maxPEs), PEsOfCube: s.within("pes_per_cube", 1, maxPEs)})
		s.end()
	}
	if len(t.Sips) == 0 || len(t.Sips) > maxSips {
		o.refuse("sips", "%d; there are 1 to %d", len(t.Sips), maxSips)
	}
	t.HBM, t.TCM = o.within("hbm_bytes", 1, maxMemory), o.within("tcm_bytes", 1, maxMemory)
	if t.TCMBase = o.number("tcm_base", true); t.TCMBase < t.HBM {
		o.refuse("tcm_base", "%d is within HBM", t.TCMBase)
	}
	if c := o.object("costs", true); c != nil {
		t.Costs = parseCosts(c)
		c.end()
	}
	o.end()
	return t, err
}

func parseCosts(c *object) (k Costs) {
	nanos := func(o *object, name string) uint64 { return o.within(name, 0, maxNanos) }
	if l := c.object("links", true); l != nil {
		for i, name := range []string{"pcie", "io", "m", "pe"} {
			o := l.object(name, true)
			if o == nil {
				continue
			}
			k.Links[i] = Link{nanos(o, "ns"), nanos(o, "per_cube_ns"), nanos(o, "per_pe_ns"), o.within("bytes_per_ns", 1, most)}
			o.end()
		}
		l.end()
	}
	if o := c.object("overhead_ns", true); o != nil {
		k.PCIe, k.IOCPU, k.MCPU = nanos(o, "pcie_ep"), nanos(o, "io_cpu"), nanos(o, "m_cpu")
		k.PECPU, k.HBM, k.TCM = nanos(o, "pe_cpu"), nanos(o, "hbm"), nanos(o, "tcm")
		o.end()
	}
	k.HBMRate, k.TCMRate = c.within("hbm_bytes_per_ns", 1, most), c.within("tcm_bytes_per_ns", 1, most)
	k.Control = c.within("control_bytes", 1, maxNanos)
	if o := c.object("exec", true); o != nil {
		k.ExecFixed, k.ExecRate = nanos(o, "fixed_ns"), o.within("bytes_per_ns", 1, most)
		o.end()
	}
	return k
}
