package iocpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLatencyGrows: with cube, PE and bytes no way gets shorter, and none takes no time.
func TestLatencyGrows(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		nanos, rate := rapid.Uint64Range(0, maxNanos), rapid.Uint64Range(1, most)
		k := Costs{
			PCIe: nanos.Draw(r, "pcie"), IOCPU: nanos.Draw(r, "io"), MCPU: nanos.Draw(r, "m"), PECPU: nanos.Draw(r, "pe"), HBM: nanos.Draw(r, "hbm"), TCM: nanos.Draw(r, "tcm"),
			HBMRate: rate.Draw(r, "hbm rate"), TCMRate: rate.Draw(r, "tcm rate"), Control: rapid.Uint64Range(1, maxNanos).Draw(r, "control"),
			ExecFixed: nanos.Draw(r, "fixed"), ExecRate: rate.Draw(r, "exec"),
		}
		for i := range k.Links {
			k.Links[i] = Link{nanos.Draw(r, "ns"), nanos.Draw(r, "cube"), nanos.Draw(r, "pe"), rate.Draw(r, "rate")}
		}
		small := anyPlace(r)
		large := Place{Cube: rapid.Uint64Range(small.Cube, maxPEs-1).Draw(r, "cube+"), PE: rapid.Uint64Range(small.PE, maxPEs-1).Draw(r, "pe+")}
		bytes := rapid.Uint64Range(1, maxMemory).Draw(r, "bytes")
		more := rapid.Uint64Range(bytes, maxMemory).Draw(r, "bytes+")
		kind := rapid.SampledFrom([]string{hbm, tcm}).Draw(r, "kind")

		latency := func(hops []Hop) uint64 {
			for i := range hops[1:] {
				require.Greater(r, hops[i+1].At, hops[i].At, "each hop takes time")
			}
			return hops[len(hops)-1].At
		}
		way := func(p Place, n uint64) uint64 { return latency(k.memory(p, kind, n, n, n)) }
		require.LessOrEqual(r, way(small, bytes), way(large, bytes))
		require.LessOrEqual(r, way(small, bytes), way(small, more))

		alone, ran := k.launch([]Place{small}, []uint64{bytes}, bytes)
		both, _ := k.launch([]Place{small, large}, []uint64{bytes, more}, bytes)
		require.LessOrEqual(r, latency(alone), latency(both))
		require.Less(r, ran[0].Start, ran[0].End)
	})
}

func anyPlace(r *rapid.T) Place {
	return Place{Cube: rapid.Uint64Range(0, maxPEs-1).Draw(r, "cube"), PE: rapid.Uint64Range(0, maxPEs-1).Draw(r, "pe")}
}
