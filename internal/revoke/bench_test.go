package revoke

import (
	"fmt"
	"testing"
)

func BenchmarkEnterLeave(b *testing.B) {
	buffer := child(b, child(b, child(b, NewRoot("device"), "tenant", Ops{}), "session", Ops{}), "buffer", Ops{})
	b.ReportAllocs()
	for b.Loop() {
		if err := buffer.Enter(); err != nil {
			b.Fatal(err)
		}
		buffer.Leave()
	}
}

// BenchmarkRefuse is the time from Close to the first refusal, by the number of
// children.
func BenchmarkRefuse(b *testing.B) {
	for _, count := range []int{100, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("children=%d", count), func(b *testing.B) {
			session := NewRoot("session")
			var last *Node
			for range count {
				last = child(b, session, "buffer", Ops{})
			}
			cause := newClosure(session, nil)
			b.ResetTimer()
			for b.Loop() {
				if !session.claim(cause) || last.Enter() == nil {
					b.Fatal("entered")
				}
				session.closing.Store(nil)
			}
		})
	}
}

// BenchmarkChildLife makes a session's children and closes them with it, per child.
func BenchmarkChildLife(b *testing.B) {
	for _, count := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("children=%d", count), func(b *testing.B) {
			for b.Loop() {
				session := NewRoot("session")
				for range count {
					child(b, session, "buffer", Ops{Release: func() {}})
				}
				if err := session.Close(nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/child")
		})
	}
}
