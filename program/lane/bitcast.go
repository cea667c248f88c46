package lane

import "capgpu/program/spirv"

// bitcast goes through words of 32 bits, lowest first.
func (l *lowerer) bitcast(in *spirv.Inst) []val {
	from, to := l.width(l.typ(l.typeOf(in.Arg(0)))), l.width(l.typ(in.Type))
	v := l.value(in.Arg(0))
	if from == to {
		return v
	}

	var words []val
	switch {
	case from == 64:
		for _, x := range v {
			words = append(words, l.emit(iLow, false, 0, x), l.emit(iHighHalf, false, 0, x))
		}

	case from == 32:
		words = v
	default:
		per := 32 / from
		for k, x := range v {
			if k%per == 0 {
				words = append(words, x)
				continue
			}
			up := l.spv(spirv.OpShiftLeftLogical, false, x, l.f.word(uint32(k%per*from)))
			words[len(words)-1] = l.spv(spirv.OpBitwiseOr, false, words[len(words)-1], up)
		}
	}

	var out []val
	n := l.typ(in.Type).leaves
	switch {
	case to == 64:
		for k := 0; k+1 < len(words); k += 2 {
			out = append(out, l.emit(iJoin, true, 0, words[k], words[k+1]))
		}
	case to == 32:
		out = words
	default:
		per := 32 / to
		for k := range n {
			w := l.cut(words, k/per, 1)[0]
			down := l.spv(spirv.OpShiftRightLogical, false, w, l.f.word(uint32(k%per*to)))
			out = append(out, l.spv(spirv.OpBitwiseAnd, false, down, l.f.word(1<<to-1)))
		}
	}

	return l.cut(out, 0, n)
}

func (l *lowerer) convert(o spirv.Opcode, x val, from, to int) val {
	return l.emit(iConvert, to == 64, uint64(o)<<16|uint64(from)<<8|uint64(to), x)
}
