package ring

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"capgpu/gpuerr"
)

// modelAllows is Check over again, from the tables of docs/wire.md: on the bytes
// of the wire, in numbers that cannot overflow, with no thought for speed.
func modelAllows(b *[EntryBytes]byte, argBytes uint32) bool {
	field := func(off, n int) *big.Int {
		var be []byte
		for i := n - 1; i >= 0; i-- {
			be = append(be, b[off+i])
		}
		return new(big.Int).SetBytes(be)
	}
	zero := func(off, n int) bool { return field(off, n).Sign() == 0 }
	sum := func(xs ...*big.Int) *big.Int {
		total := new(big.Int)
		for _, x := range xs {
			total.Add(total, x)
		}
		return total
	}
	product := func(xs ...*big.Int) *big.Int {
		total := big.NewInt(1)
		for _, x := range xs {
			total.Mul(total, x)
		}
		return total
	}
	multiple := func(x *big.Int, of int64) bool { return new(big.Int).Mod(x, big.NewInt(of)).Sign() == 0 }
	fits64 := func(x *big.Int) bool { return x.BitLen() <= 64 }

	flags, reserved := zero(1, 1) || b[0] == 5 && b[1] == 1, zero(56, 8)
	if !flags || !reserved {
		return false
	}
	op := b[0]
	countIsZero, deadlineIsZero, object := zero(2, 2), zero(4, 4), !zero(16, 8)
	argOff, argLen := field(48, 4), field(52, 4)
	argsInArena := multiple(argOff, 8) && sum(argOff, argLen).Cmp(big.NewInt(int64(argBytes))) <= 0
	switch op {
	case 0:
		return countIsZero && deadlineIsZero && zero(16, 40)
	case 1:
		dims := []*big.Int{field(24, 4), field(28, 4), field(32, 4), field(36, 2), field(38, 2), field(40, 2)}
		none := func(dims []*big.Int) bool {
			return !slices.ContainsFunc(dims, func(d *big.Int) bool { return d.Sign() != 0 })
		}
		natural := none(dims)
		if none(dims[3:]) {
			dims = dims[:3]
		}
		whole := !slices.ContainsFunc(dims, func(d *big.Int) bool { return d.Sign() == 0 })
		wantLen := sum(product(big.NewInt(32), field(2, 2)), field(42, 2))
		return object && argsInArena && argLen.Cmp(wantLen) == 0 && (natural || whole && fits64(product(dims...)))
	case 2:
		return object && countIsZero && !zero(32, 8) && !zero(48, 8) &&
			fits64(sum(field(24, 8), field(48, 8))) && fits64(sum(field(40, 8), field(48, 8)))
	case 3:
		return object && countIsZero && zero(36, 4) && zero(40, 8) && !zero(48, 8) &&
			multiple(field(24, 8), 4) && multiple(field(48, 8), 4) && fits64(sum(field(24, 8), field(48, 8)))
	case 4, 5:
		return object && countIsZero && deadlineIsZero && zero(32, 24)
	case 6:
		count := field(2, 2)
		return object && zero(24, 24) && argsInArena &&
			count.Cmp(big.NewInt(4096)) <= 0 && argLen.Cmp(product(big.NewInt(32), count)) == 0
	}
	return false
}

// compare fails t when Check and its model differ on an entry.
func compare(t testing.TB, b *[EntryBytes]byte, argBytes uint32) (allowed bool) {
	var e Entry
	e.Decode(b)
	err := Check(&e, argBytes)
	if want := modelAllows(b, argBytes); (err == nil) != want {
		t.Fatalf("Check(%x = %+v, %d) = %v; the model says allowed: %v", *b, e, argBytes, err, want)
	}
	if err != nil && gpuerr.CodeOf(err) != gpuerr.Invalid {
		t.Fatalf("Check(%+v) = %v, want E_INVALID", e, err)
	}
	return err == nil
}

// interesting values lie at the edges of something.
var interesting = []uint64{0, 1, 2, 3, 4, 7, 8, 32, 40, 64, 96, 128, 0xffff, 0x10000, 0xffffffff, 1 << 32, 1<<32 + 1, 1 << 48, 1 << 63, ^uint64(0), ^uint64(0) - 3, ^uint64(0) - 7}

// arbitrary makes an entry that is nearly right, or not.
func arbitrary(r *rand.Rand) (b [EntryBytes]byte) {
	pick := func() uint64 {
		if r.IntN(4) == 0 {
			return r.Uint64()
		}
		return interesting[r.IntN(len(interesting))]
	}
	small := func() uint32 { return 1 + r.Uint32N(40) }
	var e Entry
	switch r.IntN(8) {
	case 0:
		e = NopEntry(pick())
	case 1, 2:
		e = LaunchEntry(pick(), pick(), Dim3{small(), small(), small()}, Dim3{small(), small(), small()}, small(), small())
		if r.IntN(3) == 0 {
			e.A, e.B, e.C = pick(), pick(), pick()
		}
		e.Count = uint16(r.IntN(5))
		inline := uint64(r.IntN(3) * 8)
		e.C = e.C&^(0xffff<<16) | inline<<16
		e.D = uint64(r.IntN(20)*4) | (uint64(e.Count)*BindingBytes+inline)<<32
	case 3:
		e = CopyEntry(pick(), pick(), pick(), pick(), pick(), pick(), small())
	case 4:
		e = FillEntry(pick(), pick(), pick(), pick(), small(), small())
	case 5:
		e = SignalEntry(pick(), pick(), pick())
	case 6:
		e = WaitEntry(pick(), pick(), pick())
	case 7:
		e = ReplayEntry(pick(), pick(), small())
		e.Count = uint16(r.IntN(8))
		e.D = uint64(r.IntN(20)*4) | uint64(e.Count)*PatchBytes<<32
		if r.IntN(4) == 0 {
			e.Count, e.D = uint16(pick()), pick()
		}
	}
	e.Encode(&b)
	switch r.IntN(6) { // spoil some
	case 0:
		binary.LittleEndian.PutUint64(b[8*r.IntN(8):], pick())
	case 1:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 2:
		b[0] = byte(r.IntN(9))
	}
	return b
}

func TestCheckAgainstModel(t *testing.T) {
	rounds := 3_000_000
	if raceEnabled || testing.Short() {
		rounds = 200_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	allowed := map[Op]int{}
	for range rounds {
		b := arbitrary(r)
		if compare(t, &b, uint32(r.IntN(5)*64)) {
			allowed[Op(b[0])]++
		}
	}
	for op := range numOps {
		if allowed[op] < rounds/2000 {
			t.Errorf("%v was allowed %d times of %d: the generator misses it", op, allowed[op], rounds)
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	good := FillEntry(1, 2, 4, 8, 5, 0)
	bad := FillEntry(1, 2, 3, 4, 5, 0)
	if n := testing.AllocsPerRun(100, func() {
		if Check(&good, 64) != nil || Check(&bad, 64) == nil {
			t.Error("Check is wrong")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCheck(f *testing.F) {
	for _, g := range goldenEntries {
		var b [EntryBytes]byte
		g.e.Encode(&b)
		f.Add(b[:], uint32(256))
	}
	f.Fuzz(func(t *testing.T, in []byte, argBytes uint32) {
		var b [EntryBytes]byte
		copy(b[:], in)
		compare(t, &b, argBytes)
	})
}
