package ring

import (
	"encoding/binary"
	"errors"
	"testing"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// readWord is what docs/wire.md says of the word at a position and of its record: whether
// there is a completion, and whether the driver may have written that.
func readWord(pos, word uint64, record *[CompletionBytes]byte, completions, user uint64) (c Completion, there, right bool) {
	lap := (pos/completions + 1) % 256
	switch {
	case word%256 == (lap+255)%256:
		return c, false, true
	case word%256 != lap, word>>9&0x7f != 0:
		return c, false, false
	case word>>8&1 == 0:
		return Completion{UserData: user, Outcome: outcome.Success, DeviceNanos: word >> 16}, true, true
	case word>>16 != 0:
		return c, false, false
	}
	err := c.Decode(record)
	c.UserData = user // the record has none
	return c, err == nil, err == nil
}

// FuzzWord: whatever a driver writes at whatever position, the client reads it as the
// document says, or gives the queue up.
func FuzzWord(f *testing.F) {
	f.Add(uint64(0), uint64(1), uint64(0), uint64(1), uint64(0), uint64(0))
	f.Add(uint64(4*255-1), uint64(12<<16|255), uint64(0), uint64(0), uint64(0), uint64(0))
	f.Add(uint64(4*255), uint64(12<<16), uint64(0), uint64(0), uint64(0), uint64(0)) // lap 256 is 0
	f.Add(uint64(4*255), uint64(255), uint64(0), uint64(0), uint64(0), uint64(0))
	f.Add(uint64(4*256), uint64(1<<8|1), uint64(0), uint64(1), uint64(1<<48), uint64(0))
	f.Add(uint64(5), uint64(1<<8|2), uint64(0), uint64(0x101_0301_0102), uint64(1), uint64(2))
	f.Add(uint64(5), uint64(1<<16|1<<8|2), uint64(0), uint64(1), uint64(1), uint64(0))
	f.Add(uint64(5), uint64(1<<9|2), uint64(0), uint64(1), uint64(1), uint64(0))
	f.Add(uint64(5), uint64(1<<8|2), uint64(7), uint64(1), uint64(1), uint64(0)) // no user data
	f.Add(uint64(5), uint64(1<<8|2), uint64(0), uint64(1), uint64(1<<48), uint64(0))
	f.Add(uint64(9), uint64(1), uint64(0), uint64(1), uint64(1), uint64(0))
	f.Fuzz(func(t *testing.T, pos, word, r0, r1, r2, r3 uint64) {
		for _, times := range []int{0, 1} {
			fuzzWord(t, pos%(1<<62), word, [4]uint64{r0, r1, r2, r3}, times)
		}
	})
}

// fuzzWord has a word and a record read by who has room for so many times.
func fuzzWord(t *testing.T, pos, word uint64, r [4]uint64, times int) {
	l, err := NewLocal(Config{Entries: 2, ArgBytes: 64}, LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Client
	defer l.Server.Close(gpuerr.Closed)
	defer c.Close()
	const user = 0x1234567890
	c.pollMu.Lock()
	c.taken = pos
	c.pollMu.Unlock()
	c.submitted.Store(pos + 1)
	if c.users.first = user - pos; times == 0 { // and in places of their own
		c.users.first = 0
		c.users.keep(pos, user)
	}
	c.view.cq[pos%4], c.view.records[pos%4] = word, r
	var record [CompletionBytes]byte
	for i, w := range c.view.records[pos%4] {
		binary.LittleEndian.PutUint64(record[8*i:], w)
	}
	want, there, right := readWord(pos, word, &record, 4, user)
	to := Taking{Times: make([]uint64, times), Others: make([]Completion, 1)}
	_, err = c.poll(&to, false)
	switch got := to.whole(); {
	case !right:
		if len(got) != 0 || !errors.Is(err, gpuerr.Protocol) {
			t.Fatalf("Poll() = %d, %v: %+v; want E_PROTOCOL", len(got), err, got)
		}
	case err != nil || (len(got) == 1) != there || there && got[0] != want:
		t.Fatalf("Poll() = %d, %v: %+v; want %v: %+v", len(got), err, got, there, want)
	case to.OK != 0 && (times == 0 || word>>8&1 != 0):
		t.Fatalf("Poll() took %#x as a time", word)
	}
}
