package ring

import (
	"math/rand/v2"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// TestScribblingClient writes nonsense everywhere while the driver works: it may
// end the ring, and nothing else.
func TestScribblingClient(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(5, 6))
	ended, taken := 0, 0
	for range 500 {
		s, c := pair(t, 8, 256)
		var e Entry
		var b []Binding
		var in []byte
		for range 200 {
			switch r.IntN(8) {
			case 0:
				c.view.sq[r.IntN(8)][r.IntN(8)] = r.Uint64()
			case 1:
				word := arbitrary(r)
				e.Decode(&word)
				c.view.sq[r.IntN(8)] = e.Words()
			case 2, 3:
				c.view.sqTail.Add(r.Uint64N(4))
			case 4:
				c.view.cqHead.Add(r.Uint64N(2))
			case 5:
				c.view.args[r.IntN(len(c.view.args))] = r.Uint64N(3)
			case 6:
				off := r.IntN(len(c.mapping))
				if (off >= offSQTail && off < offCQWait || off >= offCQHead && off < offCQHead+8) && r.IntN(20) > 0 {
					continue // else every ring ends here
				}
				// The driver's words are its own.
				if (off < offSQHead || off >= offSQTail) && (off < offSQWait || off >= offCQHead) {
					c.mapping[off] = byte(r.Uint32())
				}
			default:
				ok, err := s.Take(&e)
				if err != nil {
					ended++
				}
				if !ok {
					continue
				}
				taken++
				Check(&e, 256)
				if e.Count < 100 {
					b, in, _ = s.Args(&e, b, in)
				}
				s.Consumed()
				s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
				s.Flush()
			}
		}
		s.Close(gpuerr.Closed)
		c.Close()
	}
	if ended == 0 || taken < 1000 {
		t.Errorf("%d rings ended, %d entries taken: the test misses its point", ended, taken)
	}
}
