package iocpu

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Request is one line, as far as it can be judged without the topology.
type Request struct {
	Correlation, ID string // "" where they could not be read
	Target          string // "sip:0"
	Write           *Write // one of the three is not nil
	Read            *Read
	Launch          *Launch
}

// Place is a PE.
type Place struct {
	Sip, Cube, PE uint64
	Field         string // what named it, for errors: "dst_"
}

// Write is a MemoryWrite.
type Write struct {
	Dst     Place
	PA      uint64
	Bytes   uint64
	Kind    string // "HBM", "TCM", "AUTO"
	Pattern []byte // one element
	Buffer  string // a file of the host's; "": the pattern
}

// Read is a MemoryRead.
type Read struct {
	Src     Place
	PA      uint64
	Bytes   uint64
	Discard bool
}

// Launch is a KernelLaunch.
type Launch struct {
	Kernel     string
	Deployed   bool
	Code       Place
	CodePA     uint64
	CodeBytes  uint64
	Tensors    [][]Shard
	Scalars    []Scalar
	Grid       [3]uint32 // zero: the natural grid
	CollectAll bool
}

// Shard is the part of a tensor that one PE has.
type Shard struct {
	Place
	PA, Bytes uint64
}

// Scalar is a value by the name of its type, as its bits in a field of the kernel.
type Scalar struct {
	Type     string
	Bits     uint64
	Negative bool
	Field    string
}

// Parse reads a line. The error is a gpuerr.Invalid that begins with the path of a field.
func Parse(line []byte) (r Request, err error) {
	o := parseObject(line, "", &err)
	kind := o.text("msg_type", true)
	r.Correlation, r.ID = o.text("correlation_id", true), o.text("request_id", true)
	r.Target = o.text("target_device", true)
	o.text("timestamp_tag", false)
	o.text("debug_label", false)
	switch kind {
	case "MemoryWrite", "memory_write":
		r.Write = parseWrite(o)
	case "MemoryRead", "memory_read":
		r.Read = &Read{Src: place(o, "src_"), PA: o.number("src_pa", true), Bytes: size(o, "nbytes")}
		r.Read.Discard = o.oneOf("dst_kind", false, "host_sink", "discard") == "discard"
	case "KernelLaunch", "kernel_launch":
		r.Launch = parseLaunch(o)
	default:
		o.refuse("msg_type", "%q is none of MemoryWrite, MemoryRead and KernelLaunch", kind)
	}
	o.end()
	return r, err
}

func place(o *object, prefix string) Place {
	return Place{Sip: o.number(prefix+"sip", true), Cube: o.number(prefix+"cube", true), PE: o.number(prefix+"pe", true), Field: o.path + prefix}
}

func size(o *object, name string) uint64 {
	n := o.number(name, true)
	if n == 0 {
		o.refuse(name, "0 bytes")
	}
	return n
}

func parseWrite(o *object) *Write {
	w := &Write{Dst: place(o, "dst_"), PA: o.number("dst_pa", true), Bytes: size(o, "nbytes")}
	w.Kind = o.oneOf("dst_mem_kind", false, "AUTO", "HBM", "TCM")
	source := o.oneOf("src_kind", true, "pattern", "host_buffer_ref")
	p := o.object("pattern", source == "pattern")
	w.Buffer = o.text("host_buffer_ref", source == "host_buffer_ref")
	switch {
	case source == "pattern" && w.Buffer != "":
		o.refuse("host_buffer_ref", "src_kind is pattern")
	case source != "pattern" && p != nil:
		o.refuse("pattern", "src_kind is host_buffer_ref")
	case source != "pattern" && (w.Buffer == "" || w.Buffer == "." || w.Buffer == ".." || strings.ContainsAny(w.Buffer, "/\\")):
		o.refuse("host_buffer_ref", "%q is no name of a file", w.Buffer)
	}
	if p == nil {
		return w
	}

	switch kind := p.oneOf("pattern_kind", true, "zero", "fill_u8", "fill_u16", "fill_u32", "fill_fp16", "fill_fp32"); kind {
	case "zero":
		p.take("value", false)
		w.Pattern = []byte{0}
	case "fill_u8", "fill_u16", "fill_u32":
		bits, _ := strconv.Atoi(kind[len("fill_u"):])
		v := p.number("value", true)
		if v >= 1<<bits {
			p.refuse("value", "%d has more than %d bits", v, bits)
		}
		w.Pattern = binary.LittleEndian.AppendUint64(nil, v)[:bits/8]
	case "fill_fp16":
		w.Pattern = binary.LittleEndian.AppendUint16(nil, half(p.float("value", 16)))
	case "fill_fp32":
		w.Pattern = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(p.float("value", 32))))
	}
	p.end()
	if n := uint64(len(w.Pattern)); n > 0 && w.Bytes%n != 0 {
		o.refuse("nbytes", "%d is no multiple of the element's %d", w.Bytes, n)
	}
	return w
}

func parseLaunch(o *object) *Launch {
	l := &Launch{}
	if k := o.object("kernel_ref", true); k != nil {
		l.Kernel = k.text("name", true)
		l.Deployed = k.oneOf("kind", true, "builtin", "deployed") == "deployed"
		l.CodePA, l.Code = k.number("deploy_pa", l.Deployed), place(k, "deploy_")
		if l.CodeBytes = k.number("nbytes_code", true); l.Deployed && l.CodeBytes == 0 {
			k.refuse("nbytes_code", "0 bytes")
		}
		k.end()
	}
	l.CollectAll = o.oneOf("failure_policy", false, "fail_fast", "collect_all") == "collect_all"
	if g := o.object("grid", false); g != nil {
		l.Grid = [3]uint32{uint32(g.within("x", 1, math.MaxUint32)), 1, 1}
		for i, name := range []string{"y", "z"} {
			if n := g.number(name, false); n > math.MaxUint32 {
				g.refuse(name, "%d is too large", n)
			} else if n > 0 {
				l.Grid[1+i] = uint32(n)
			}
		}
		g.end()
	}
	if m := o.object("meta", false); m != nil {
		clear(m.fields) // anything
	}

	for i, text := range o.list("args") {
		a := o.item("args", i, text)
		switch a.oneOf("arg_kind", true, "tensor", "scalar") {
		case "tensor":
			if m := a.object("tensor_pa_map", true); m != nil {
				l.Tensors = append(l.Tensors, parseShards(m))
				m.end()
			}
		case "scalar":
			l.Scalars = append(l.Scalars, parseScalar(a))
		}
		a.end()
	}
	if len(l.Tensors) == 0 {
		o.refuse("args", "there is no tensor, which says where to run")
	}
	return l
}

func parseShards(m *object) (shards []Shard) {
	for i, text := range m.list("shards") {
		s := m.item("shards", i, text)
		shards = append(shards, Shard{Place: place(s, ""), PA: s.number("pa", true), Bytes: size(s, "nbytes")})
		s.number("offset_bytes", true)
		s.end()
	}
	if len(shards) == 0 {
		m.refuse("shards", "there is none")
	}
	return shards
}

func parseScalar(a *object) Scalar {
	s := Scalar{Type: a.oneOf("dtype", true, "i32", "i64", "fp16", "fp32", "bool"), Field: a.path + "value"}
	switch s.Type {
	case "bool":
		switch v := string(a.take("value", true)); v {
		case "true":
			s.Bits = 1
		case "false":
		default:
			a.refuse("value", "%.40s is no bool", v)
		}
	case "fp16":
		s.Bits = uint64(math.Float32bits(unhalf(half(a.float("value", 16)))))
	case "fp32":
		s.Bits = uint64(math.Float32bits(float32(a.float("value", 32))))
	case "i32", "i64":
		bits, _ := strconv.Atoi(s.Type[1:])
		v := a.take("value", true)
		n, err := strconv.ParseInt(string(v), 10, bits)
		if v != nil && err != nil {
			a.refuse("value", "%.40s is no integer of %d bits", v, bits)
		}
		s.Bits, s.Negative = uint64(n), n < 0
	}
	return s
}

// float is a number that rounds, to nearest even, to one of the type.
func (o *object) float(name string, bits int) float64 {
	v := o.take(name, true)
	if v == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(v), max(bits, 32))
	var n json.Number
	if err != nil || json.Unmarshal(v, &n) != nil || v[0] == '"' || bits == 16 && math.Abs(f) >= 65520 {
		o.refuse(name, "%.40s is no number that fp%d holds", v, bits)
		return 0
	}
	return f
}

// half rounds to binary16, to nearest even. f is within its range.
func half(f float64) uint16 {
	sign := uint16(math.Float64bits(f) >> 48 & 0x8000)
	f = math.Abs(f)
	if f < 0x1p-14 { // subnormal: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(f*0x1p24))
	}
	frac, exp := math.Frexp(f)                  // frac in [0.5, 1)
	m := uint16(math.RoundToEven(frac * 0x800)) // 1024 to 2048
	return sign | (uint16(exp+13)<<10 + m)      // m = 2048 carries into the exponent
}

func unhalf(h uint16) float32 {
	m, exp := float64(h&0x3ff), int(h>>10&0x1f)
	f := math.Ldexp(m, -24)
	if exp > 0 {
		f = math.Ldexp(m+0x400, exp-25)
	}
	if h&0x8000 != 0 {
		f = -f
	}
	return float32(f)
}
