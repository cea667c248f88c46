package spirvtest

import (
	"encoding/binary"
	"math/rand/v2"
)

// Mutate returns a copy of a module with a few faults, of the kinds that surprise
// parsers, verifiers and compilers: bits flipped, words replaced by others of the
// module or by extremes, ids swapped, instructions deleted, doubled, swapped or
// moved, the end cut off. One call in sixteen changes nothing but appends bytes or
// clears the header. The result depends only on rng and module, which may be any
// bytes, little-endian.
func Mutate(rng *rand.Rand, module []byte) []byte {
	m := mutant{rng: rng, words: make([]uint32, len(module)/4)}
	for i := range m.words {
		m.words[i] = binary.LittleEndian.Uint32(module[4*i:])
	}

	if len(m.words) <= header || rng.IntN(16) == 0 {
		return m.coarse(module)
	}

	for n := 1 + rng.IntN(3)*rng.IntN(3); n > 0; n-- {
		m.once()
		if len(m.words) <= header {
			break
		}
	}

	out := make([]byte, 4*len(m.words), 4*len(m.words)+3)
	for i, w := range m.words {
		binary.LittleEndian.PutUint32(out[4*i:], w)
	}

	return out
}

// Swap returns the module in the other byte order.
func Swap(module []byte) []byte {
	out := append([]byte(nil), module...)
	for i := 0; i+4 <= len(out); i += 4 {
		binary.BigEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(module[i:]))
	}
	return out
}

const header = 5 // words

type mutant struct {
	rng   *rand.Rand
	words []uint32
}

func (m *mutant) coarse(module []byte) []byte {
	out := append([]byte(nil), module...)
	switch m.rng.IntN(3) {
	case 0:
		for n := 1 + m.rng.IntN(9); n > 0; n-- {
			out = append(out, byte(m.rng.Uint32()))
		}
	case 1:
		if len(out) > 0 {
			out = out[:m.rng.IntN(len(out))]
		}
	case 2:
		if len(out) >= 4*header {
			binary.LittleEndian.PutUint32(out[4*m.rng.IntN(header):], m.extreme())
		}
	}

	return out
}

// pick chooses a word to change: mostly the last of an instruction, or one in it
// that is not the first, because parsers refuse nearly every other change.
func (m *mutant) pick() int {
	if all := m.split(); len(all) > 0 && m.rng.IntN(8) != 0 {
		if s := all[m.rng.IntN(len(all))]; s.end-s.at > 1 {
			if m.rng.IntN(2) == 0 {
				return s.end - 1
			}
			return s.at + 1 + m.rng.IntN(s.end-s.at-1)
		}
	}
	return header + m.rng.IntN(len(m.words)-header)
}

func (m *mutant) once() {
	at := m.pick()
	switch m.rng.IntN(10) {
	case 0:
		m.words[at] ^= 1 << m.rng.IntN(32)

	case 1:
		m.words[at] = m.extreme()
	case 2: // a word of elsewhere
		m.words[at] = m.words[m.pick()]

	case 3: // a small number: another id, enumerant, width or count
		m.words[at] = uint32(m.rng.IntN(64))
	case 4: // an operand one more or less
		m.words[at] += uint32(1 - 2*m.rng.IntN(2))

	case 5:
		m.swapIDs()
	case 6, 7, 8:
		m.instructions()

	case 9: // another opcode, of as many words
		if all := m.split(); len(all) > 0 {
			i, j := all[m.rng.IntN(len(all))], all[m.rng.IntN(len(all))]
			m.words[i.at] = m.words[i.at]&^0xffff | m.words[j.at]&0xffff
		}
	}
}

func (m *mutant) extreme() uint32 {
	return [...]uint32{0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0xffff, 0x10000, 0x00010001, m.rng.Uint32()}[m.rng.IntN(10)]
}

// swapIDs exchanges two values of words everywhere, in one half of the module or
// all of it. Most often these are ids.
func (m *mutant) swapIDs() {
	bound := max(2, min(m.words[3], 1<<16))
	a, b := 1+m.rng.Uint32N(bound-1), 1+m.rng.Uint32N(bound-1)
	from := header
	if m.rng.IntN(2) == 0 {
		from += m.rng.IntN(len(m.words) - header)
	}

	for _, i := range m.split() {
		for at := max(i.at+1, from); at < i.end; at++ {
			switch m.words[at] {
			case a:
				m.words[at] = b
			case b:
				m.words[at] = a
			}
		}
	}
}

type span struct{ at, end int }

// split finds the instructions, as far as they follow one another.
func (m *mutant) split() []span {
	var all []span
	for at := header; at < len(m.words); {
		end := at + int(m.words[at]>>16)
		if end == at || end > len(m.words) {
			break
		}
		all = append(all, span{at, end})
		at = end
	}
	return all
}

// instructions deletes, doubles, swaps, moves or cuts.
func (m *mutant) instructions() {
	all := m.split()
	if len(all) < 2 {
		return
	}

	i := m.rng.IntN(len(all))
	j := m.rng.IntN(len(all))
	if m.rng.IntN(2) == 0 {
		j = min(i+1, len(all)-1) // its neighbour
	}

	text := func(s span) []uint32 { return m.words[s.at:s.end] }
	var out []uint32
	out = append(out, m.words[:header]...)
	switch kind := m.rng.IntN(6); kind {
	case 0, 1, 2: // delete, double, cut
		for k, s := range all {
			if kind == 0 && k == i {
				continue
			}
			if kind == 2 && k > i {
				break
			}
			out = append(out, text(s)...)
			if kind == 1 && k == i {
				out = append(out, text(s)...)
			}
		}

	case 3: // swap
		all[i], all[j] = all[j], all[i]
		for _, s := range all {
			out = append(out, text(s)...)
		}

	case 4: // move i to j
		for k, s := range all {
			if k != i {
				out = append(out, text(s)...)
			}
			if k == j {
				out = append(out, text(all[i])...)
			}
		}

	case 5: // an operand more or less
		for k, s := range all {
			words := text(s)
			if k == i && len(words) > 1 && len(words) < 0xffff {
				head := len(out)
				if m.rng.IntN(2) == 0 {
					words = words[:len(words)-1]
				}
				out = append(out, words...)
				if len(words) == s.end-s.at {
					out = append(out, words[len(words)-1])
				}
				out[head] = out[head]&0xffff | uint32(len(out)-head)<<16
				continue
			}
			out = append(out, words...)
		}
	}

	m.words = out
}
