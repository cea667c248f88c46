package client

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ring"
)

// A launch is the one that was noted as long as nothing of it differs, whatever that is.
func TestLaunchedIs(t *testing.T) {
	s := &Session{}
	buffers, programs := []Buffer{{handle: 1}, {handle: 2}}, []Program{{handle: 1}, {handle: 2}}
	r := rand.New(rand.NewPCG(31, 32))
	random := func() *Launch {
		dim := func() Dim3 { return Dim3{1, 1, r.Uint32N(2)} }
		l := &Launch{Program: &programs[r.IntN(2)], Grid: dim(), SharedBytes: r.Uint32N(2), Deadline: 1}
		for range 1 + r.IntN(2) {
			l.Bindings = append(l.Bindings, Binding{Buffer: &buffers[r.IntN(2)], Off: 1 << 40 * r.Uint64N(2), Len: 3})
		}
		for range 1 + r.IntN(2) {
			l.Inline = append(l.Inline, byte(r.IntN(2)))
		}
		return l
	}
	changes := []func(l *Launch){
		func(l *Launch) { l.Program = &Program{s: s} },
		func(l *Launch) { l.Grid.X ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Grid.Y ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Grid.Z ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Block.X ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Block.Y ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Block.Z ^= 1 << r.IntN(32) },
		func(l *Launch) { l.SharedBytes ^= 1 << r.IntN(32) },
		func(l *Launch) { l.Deadline ^= 1 << r.IntN(64) },
		func(l *Launch) { l.Bindings[r.IntN(len(l.Bindings))].Buffer = &Buffer{s: s} },
		func(l *Launch) { l.Bindings[r.IntN(len(l.Bindings))].Off ^= 1 << r.IntN(64) },
		func(l *Launch) { l.Bindings[r.IntN(len(l.Bindings))].Len ^= 1 << r.IntN(64) },
		func(l *Launch) { l.Bindings = l.Bindings[1:] },
		func(l *Launch) { l.Bindings = append(l.Bindings, l.Bindings[0]) },
		func(l *Launch) { l.Inline[r.IntN(len(l.Inline))] ^= 1 << r.IntN(8) },
		func(l *Launch) { l.Inline = l.Inline[1:] },
		func(l *Launch) { l.Inline = append(l.Inline, 0) },
	}
	var x launched
	same := 0
	for i := range ring.Kept(20000) {
		l := random()
		x.note(i, l)
		again := *l
		again.Bindings, again.Inline = append([]Binding(nil), l.Bindings...), append([]byte(nil), l.Inline...)
		require.True(t, x.is(i, &again))
		require.False(t, x.is(i+1, &again))
		changes[r.IntN(len(changes))](&again)
		require.False(t, x.is(i, &again), "%+v %+v", l, again)
		other := random()
		require.Equal(t, reflect.DeepEqual(x.Launch, *other), x.is(i, other))
		if x.is(i, other) {
			same++
		}
	}
	require.NotZero(t, same)
	x.note(1, &Launch{Program: &programs[0]})
	require.True(t, x.is(1, &Launch{Program: &programs[0], Bindings: []Binding{}, Inline: []byte{}}))
	require.Equal(t, 9, reflect.TypeOf(Launch{}).NumField()+reflect.TypeOf(Binding{}).NumField()-1, "what is new is to be compared as well")
}
