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
	return get[[]byte](c, "make a bundle")(program.Encode(mirror, &program.Manifest{
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
		c.that(got == want, "element %d is %d, want %d", i, got, want)
	}
}

func (s *smoke) loadProgram(c *check) {
	session, done := c.open()
	defer done()
	bundle := mirrorBundle(c)
	p := get[*client.Program](c, "load a program")(session.LoadProgram(c.ctx, bundle))
	info := p.Info()
	c.that(info.Name == "mirror" && info.Block.X == mirrorLanes && info.InlineBytes == 4 && len(info.Bindings) == 2, "it is taken for %+v", info)
	again := get[*client.Program](c, "open it by its digest")(session.OpenProgram(c.ctx, info.Digest.String()))
	x, xMem := newBuffer(c, session, 4*mirrorCount)
	y, yMem := newBuffer(c, session, 4*mirrorCount)
	mirrorInput(xMem)
	q := get[*client.Queue](c, "create a queue")(session.CreateQueue(c.ctx, client.QueueOptions{}))
	for _, run := range []*client.Program{p, again} {
		clear(yMem)
		end := runAll(c, q, &client.Launch{
			Program: run, Bindings: []client.Binding{{Buffer: x}, {Buffer: y}},
			Inline: binary.LittleEndian.AppendUint32(nil, mirrorPlus),
		})[0]
		c.that(end.Outcome == outcome.Success, "ended %v (%v)", end.Outcome, end.Err)
		c.mirrored(yMem)
	}
	c.say("%d bytes of SPIR-V, %d elements, each right", len(mirror), mirrorCount)
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
		_, err := session.LoadProgram(c.ctx, bad.bundle)
		c.refused(err, bad.what, gpuerr.Program)
		code := refusalCode.FindString(err.Error())
		c.that(code != "", "%s: %v does not say why", bad.what, err)
		codes += " " + code
	}
	budget := get[[]client.BudgetEntry](c, "ask for the budget")(session.Budget(c.ctx))
	for _, e := range budget {
		if e.Resource == "programBytes" || e.Resource == "programs" || e.Resource == "buffers" {
			c.that(e.Used == 0, "%d of %s are still charged", e.Used, e.Resource)
		}
	}
	s.sameDriver(c)
	c.say("%v%s", gpuerr.Program, codes)
}

// capnpLoad is the same through a gate; a session that cannot load runs what it is
// handed.
func (s *smoke) capnpLoad(c *check) {
	p := c.dialRPC(tenant)
	defer p.close()
	session := p.open(c)
	loaded := get[schema.GpuProgram](c, "load a program over Cap'n Proto")(p.load(c, session, mirrorBundle(c)))
	weak := p.restrict(c, session, schema.SessionFacet_program)
	for _, runner := range []schema.GpuSession{session, weak} {
		x, y := p.buffer(c, runner, 4*mirrorCount), p.buffer(c, runner, 4*mirrorCount)
		xMem, yMem := p.mapped(c, x, 4*mirrorCount), p.mapped(c, y, 4*mirrorCount)
		mirrorInput(xMem)
		fence := p.fence(c, runner)
		c.must(p.run(c, runner, loaded, []uint32{p.id(c, x), p.id(c, y)}, binary.LittleEndian.AppendUint32(nil, mirrorPlus), fence), "run it")
		end := p.wait(c, fence)
		c.that(end.ok && end.kind == schema.OutcomeKind_ok, "ended %+v", end)
		c.mirrored(yMem)
		c.must(unix.Munmap(xMem), "unmap")
		c.must(unix.Munmap(yMem), "unmap")
	}
	_, err := p.load(c, session, mirror[:400])
	c.refused(err, "a piece of a module", gpuerr.Program)
	code := refusalCode.FindString(err.Error())
	c.that(code != "", "%v does not say why", err)
	_, err = p.load(c, weak, mirror)
	c.refused(err, "to load in a program session", gpuerr.Unimplemented)
	c.must(p.closeSession(c, session), "close the session")
	s.sameDriver(c)
	c.say("%d elements, each right, also where it was handed to; a bad one: %v %s", mirrorCount, gpuerr.Program, code)
}
