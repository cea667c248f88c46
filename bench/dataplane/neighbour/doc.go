// Package neighbour is what another tenant may be to somebody who wants to get on with
// his work: a good one, which has as much to do as he has, or one of several bad ones.
//
// A neighbour is a process of its own: this same program with a hidden first argument
// (RunIfNeighbour). Its parent tells it when to begin and when to stop, and it says what
// came of what it tried. Its threads are the last in the host's order: what is measured is
// what the service does about it, and not what the host's scheduler does about a client
// that burns its own CPU.
package neighbour

// Manner is how a neighbour behaves.
type Manner string

const (
	// Good launches the same program over as much data as Victim does, one after the
	// other: with it, each of the two has its fair share.
	Good Manner = "good"
	// Endless launches programs that never end.
	Endless Manner = "endless"
	// Flood fills its queues as fast as it can with the shortest work there is.
	Flood Manner = "flood"
	// Quota asks for memory until it is refused, and goes on asking.
	Quota Manner = "quota"
	// Closes closes sessions full of memory, and fills new ones.
	Closes Manner = "closes"
)

// Hostile lists the bad ones.
var Hostile = []Manner{Endless, Flood, Quota, Closes}

// Names are those of the bad ones.
func Names() (all []string) {
	for _, m := range Hostile {
		all = append(all, string(m))
	}
	return all
}

// Report is what a neighbour says when it stops.
type Report struct {
	Done    int            `json:"done"`    // what went well
	Refused map[string]int `json:"refused"` // and what did not, by error code or outcome
	Err     string         `json:"err,omitempty"`
}
