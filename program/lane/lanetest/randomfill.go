package lanetest

import (
	"encoding/binary"
	"math"
)

// fill fills the bindings and push constants.
func (g *generator) fill(c *Case) {
	all := int(g.launch.grid.X*g.launch.grid.Y*g.launch.grid.Z) * g.launch.lanes
	elements := [bindings]int{64 + 80*g.launch.lanes, 64 + 80*g.launch.lanes, all * slots, all * slots, all * slots, all * slots, all * slots, all * slots, all * slots, regions * cells, 0, all * slots}
	bytes := [bindings]int{4, 4, 4, 4, 8, 8, 4, 2, 4, 4, 0, 4}
	for i := range bindings {
		n := elements[i] * bytes[i]
		if i == outStructs {
			n = 16 + all*int(g.mem.structs.stride())
		}
		if g.mem.buffers[i] == 0 {
			n = 0
		}
		if g.wild && g.n(12) == 11 {
			n -= g.n(max(1, n/3))
		}

		data := make([]byte, n+8)
		if g.wild && g.n(20) == 19 {
			data = data[1:]
		}

		data = data[:n]
		g.contents(i, data)
		c.Launch.Bindings = append(c.Launch.Bindings, data)
	}

	for range 40 {
		c.Launch.Inline = append(c.Launch.Inline, byte(g.n(6)))
	}
}

var oddWords = []uint32{0, 1, math.MaxUint32, 1 << 31, 1<<31 - 1, 2, 3, 7, 0x80, 0xFF00}

var oddFloats = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, 0x1p-140, 0x1p31, -0x1p31, 0x1p32, 0.5, 2.5, -7}

// contents fills a buffer. Halves, and the floats in structs, are no NaNs.
func (g *generator) contents(binding int, data []byte) {
	seed := uint32(g.n(1 << 30))
	next := func() uint32 { // few choices make much data
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		if seed == 0 {
			seed = 1
		}
		return seed
	}

	for at := 0; at+4 <= len(data); at += 4 {
		w := next()
		switch binding {
		case inFloats, outFloats:
			x := float32(int32(w)>>12) / 64
			if w%5 == 0 {
				x = float32(oddFloats[next()%uint32(len(oddFloats))])
			}
			w = math.Float32bits(x)

		case outDoubles:
			if at%8 == 0 && at+8 <= len(data) {
				x := float64(int32(w)) / 4096
				if w%5 == 0 {
					x = oddFloats[next()%uint32(len(oddFloats))]
				}
				binary.LittleEndian.PutUint64(data[at:], math.Float64bits(x))
			}
			continue

		case outHalves:
			w &= 0x3FFF3FFF // below 2
		case outStructs:
			w &= 0x00FFFFFF
			if g.small {
				w &= 0x00FF3FFF
			}

		case inWords:
			switch w % 3 {
			case 0:
				w = oddWords[next()%uint32(len(oddWords))]
			case 1:
				w = next() % 20
			}
		}

		binary.LittleEndian.PutUint32(data[at:], w)
	}
}
