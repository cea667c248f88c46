package rpcguardtest

import (
	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// Build makes the bytes of one message.
func Build(f func(rpccp.Message) error) []byte {
	_, seg := capnp.NewSingleSegmentMessage(nil)
	root, err := rpccp.NewRootMessage(seg)
	check(err)
	check(f(root))
	b, err := root.Message().Marshal()
	check(err)
	return b
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Bootstrap asks for the first capability.
func Bootstrap(id uint32) []byte {
	return Build(func(m rpccp.Message) error {
		b, err := m.NewBootstrap()
		b.SetQuestionId(id)
		return err
	})
}

// Finish ends a question.
func Finish(id uint32, releaseCaps bool) []byte {
	return Build(func(m rpccp.Message) error {
		f, err := m.NewFinish()
		f.SetQuestionId(id)
		f.SetReleaseResultCaps(releaseCaps)
		return err
	})
}

// Release gives back n references of a capability.
func Release(id, n uint32) []byte {
	return Build(func(m rpccp.Message) error {
		r, err := m.NewRelease()
		r.SetId(id)
		r.SetReferenceCount(n)
		return err
	})
}

// Disembargo asks for the echo of a loopback on a promise.
func Disembargo(loopback, question uint32, path []uint16) []byte {
	return Build(func(m rpccp.Message) error {
		d, err := m.NewDisembargo()
		if err != nil {
			return err
		}
		d.Context().SetSenderLoopback(loopback)
		target, err := d.NewTarget()
		if err != nil {
			return err
		}
		return SetPromise(target.NewPromisedAnswer, question, path)
	})
}

// SetPromise names the capability at path in the result of a question.
func SetPromise(alloc func() (rpccp.PromisedAnswer, error), id uint32, path []uint16) error {
	promise, err := alloc()
	if err != nil {
		return err
	}
	promise.SetQuestionId(id)
	ops, err := promise.NewTransform(int32(len(path)))
	for i, f := range path {
		ops.At(i).SetGetPointerField(f)
	}
	return err
}
