package main

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"regexp"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/qemu/guest/tap"
	"capgpu/schema"
)

// mirror is a program that the device has not: every workgroup turns its 64
// elements round, and adds a number. kernel/mirror.comp is its source.
//
//go:embed kernel/mirror.spv
var mirror []byte

const (
	mirrorLanes = 64
	mirrorPlus  = 1000
	mirrorCount = 100 * mirrorLanes
)

// mirrorBundle is the module with a manifest.
func mirrorBundle(c *check) []byte {
	return tap.Get[[]byte](c.Check, "make a bundle")(program.Encode(mirror, &program.Manifest{
		Name:     "mirror",
		Bindings: []program.Binding{{Name: "x", Access: program.Read, Type: "u32"}, {Name: "y", Access: program.Write, Type: "u32"}},
	}))
}

func mirrorInput(mem []byte) {
	for i := range mirrorCount {
		binary.LittleEndian.PutUint32(mem[4*i:], uint32(i)*2654435761)
	}
}

// mirrored looks at every element.
func (c *check) mirrored(mem []byte) {
	for i := range mirrorCount {
		from := i - i%mirrorLanes + mirrorLanes - 1 - i%mirrorLanes
		got, want := binary.LittleEndian.Uint32(mem[4*i:]), uint32(from)*2654435761+mirrorPlus
		c.That(got == want, "element %d is %d, want %d", i, got, want)
	}
}

func (s *smoke) loadProgram(c *check) {
	session, done := c.open()
	defer done()
	bundle := mirrorBundle(c)
	p := tap.Get[*client.Program](c.Check, "load a program")(session.LoadProgram(c.Ctx, bundle))
	info := p.Info()
	c.That(info.Name == "mirror" && info.Block.X == mirrorLanes && info.InlineBytes == 4 && len(info.Bindings) == 2, "it is taken for %+v", info)
	again := tap.Get[*client.Program](c.Check, "open it by its digest")(session.OpenProgram(c.Ctx, info.Digest.String()))
	x, xMem := newBuffer(c, session, 4*mirrorCount)
	y, yMem := newBuffer(c, session, 4*mirrorCount)
	mirrorInput(xMem)
	q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
	for _, run := range []*client.Program{p, again} {
		clear(yMem)
		end := runAll(c, q, &client.Launch{
			Program: run, Bindings: []client.Binding{{Buffer: x}, {Buffer: y}},
			Inline: binary.LittleEndian.AppendUint32(nil, mirrorPlus),
		})[0]
		c.That(end.Outcome == outcome.Success, "ended %v (%v)", end.Outcome, end.Err)
		c.mirrored(yMem)
	}

	c.Say("%d bytes of SPIR-V, %d elements, each right", len(mirror), mirrorCount)
}

// refusalCode is the code of a verifier's diagnostic.
var refusalCode = regexp.MustCompile(`(SPV|[EW]-GPU)-[0-9]+`)

// hostilePrograms are refused with a code that says why, and cost nothing but that.
func (s *smoke) hostilePrograms(c *check) {
	session, done := c.open()
	defer done()
	kernel := bytes.Clone(mirror) // its first instruction declares the capability Shader
	binary.LittleEndian.PutUint32(kernel[24:], 6)
	bound := bytes.Clone(mirror)
	binary.LittleEndian.PutUint32(bound[12:], 1<<30)
	codes := ""
	for _, bad := range []struct {
		what   string
		bundle []byte
	}{
		{"a module of another kind", kernel},
		{"a module that claims 2^30 ids", bound},
		{"half a module", mirror[:len(mirror)/2&^3]},
	} {
		_, err := session.LoadProgram(c.Ctx, bad.bundle)
		c.Refused(err, bad.what, gpuerr.Program)
		code := refusalCode.FindString(err.Error())
		c.That(code != "", "%s: %v does not say why", bad.what, err)
		codes += " " + code
	}

	budget := tap.Get[[]client.BudgetEntry](c.Check, "ask for the budget")(session.Budget(c.Ctx))
	for _, e := range budget {
		if e.Resource == "programBytes" || e.Resource == "programs" || e.Resource == "buffers" {
			c.That(e.Used == 0, "%d of %s are still charged", e.Used, e.Resource)
		}
	}

	s.sameDriver(c)
	c.Say("%v%s", gpuerr.Program, codes)
}

// capnpLoad is the same through a gate; a session that cannot load runs a program that is
// passed to it.
func (s *smoke) capnpLoad(c *check) {
	p := c.dialRPC(tenant)
	defer p.Close()
	session := p.Open(c.Check, 0)
	loaded := tap.Get[schema.GpuProgram](c.Check, "load a program over Cap'n Proto")(p.Load(c.Check, session, mirrorBundle(c)))
	weak := p.Restrict(c.Check, session, schema.SessionFacet_program)
	for _, runner := range []schema.GpuSession{session, weak} {
		x, y := p.Buffer(c.Check, runner, 4*mirrorCount), p.Buffer(c.Check, runner, 4*mirrorCount)
		xMem, yMem := p.Mapped(c.Check, x, 4*mirrorCount), p.Mapped(c.Check, y, 4*mirrorCount)
		mirrorInput(xMem)
		fence := p.Fence(c.Check, runner)
		c.Must(p.Run(c.Check, runner, loaded, []uint32{p.ID(c.Check, x), p.ID(c.Check, y)}, binary.LittleEndian.AppendUint32(nil, mirrorPlus), fence), "run it")
		end := p.Wait(c.Check, fence)
		c.That(end.OK && end.Kind == schema.OutcomeKind_ok, "ended %+v", end)
		c.mirrored(yMem)
		c.Must(unix.Munmap(xMem), "unmap")
		c.Must(unix.Munmap(yMem), "unmap")
	}

	_, err := p.Load(c.Check, session, mirror[:400])
	c.Refused(err, "a piece of a module", gpuerr.Program)
	code := refusalCode.FindString(err.Error())
	c.That(code != "", "%v does not say why", err)
	_, err = p.Load(c.Check, weak, mirror)
	c.Refused(err, "to load in a program session", gpuerr.Unimplemented)
	c.Must(p.CloseSession(c.Check, session), "close the session")
	s.sameDriver(c)
	c.Say("%d elements, each right, also where it was handed to; a bad one: %v %s", mirrorCount, gpuerr.Program, code)
}
