// Package report shows figures: as a table, as JSON, and as a picture.
package report

import (
	"fmt"
	"math"
	"time"

	"capgpu/bench/dataplane/paired"
)

// Target is a figure's required bound, and its aim.
type Target struct {
	Must, Aim float64 // equal: there is no further aim
	Least     bool    // the figure must be at least that
	Set       bool    // there is a target

	// Promise is the number of a promise of SPECIFICATION.md with a stricter bound
	// than Must, and Promised that bound. Empty: there is none.
	Promise  string
	Promised float64
}

// AtMost is the target of a figure that is better when it is small.
func AtMost(must, aim float64) Target { return Target{Must: must, Aim: aim, Set: true} }

// AtLeast is the target of a figure that is better when it is large.
func AtLeast(must, aim float64) Target { return Target{Must: must, Aim: aim, Least: true, Set: true} }

// Promises returns the target of a figure for which a promise has a bound of its
// own.
func (t Target) Promises(promise string, bound float64) Target {
	t.Promise, t.Promised = promise, bound
	return t
}

// meets reports whether a figure keeps a bound. NaN keeps none.
func (t Target) meets(figure, bound float64) bool {
	if t.Least {
		return figure >= bound
	}
	return figure <= bound
}

// Row is one figure.
type Row struct {
	ID     string `json:"id"`     // of the target, "P1"
	Metric string `json:"metric"` // ours / peer
	Ours   string `json:"ours"`   // with its unit
	Peer   string `json:"peer"`   // with its unit; empty: none
	// Ratio is the figure itself, to which Must and Aim apply.
	Ratio float64 `json:"ratio"`
	// Low and High are its 10th and 90th percentile; 0: it was measured once.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Pairs is the number of compared pairs.
	Pairs  int     `json:"pairs,omitempty"`
	Must   float64 `json:"must"`
	Aim    float64 `json:"aim"`
	Least  bool    `json:"atLeast,omitempty"`
	Target bool    `json:"target"`           // Must and Aim apply
	Missed bool    `json:"missed"`           // Must
	Breaks string  `json:"breaks,omitempty"` // the promise that the figure breaks
	Unit   string  `json:"unit,omitempty"`
}

// Ratio is a figure that comes from a comparison of times.
func Ratio(id, metric string, r paired.Result, t Target) Row {
	row := Row{ID: id, Metric: metric, Ours: Nanos(r.Ours), Peer: Nanos(r.Peer), Ratio: r.Ratio, Low: r.Low, High: r.High, Pairs: r.Pairs}
	return row.against(t)
}

// Speed is a figure from a comparison of the times of a token: the ratio of our
// tokens per second to the peer's.
func Speed(id, metric string, r paired.Result, t Target) Row {
	row := Ratio(id, metric, r.Inverse(), t)
	row.Ours, row.Peer = PerSecond(r.Ours), PerSecond(r.Peer)
	return row
}

// PerSecond is the number of operations of this many nanoseconds in a second.
func PerSecond(nanos float64) string {
	if !(nanos > 0) {
		return "?"
	}
	return Number(1e9/nanos) + "/s"
}

// Value is a figure that was measured once or counted.
func Value(id, metric, ours, peer string, value float64, unit string, t Target) Row {
	return Row{ID: id, Metric: metric, Ours: ours, Peer: peer, Ratio: value, Unit: unit}.against(t)
}

// Absolute is a figure without a peer.
func Absolute(id, metric string, nanos float64) Row {
	return Row{ID: id, Metric: metric, Ours: Nanos(nanos), Ratio: nanos, Unit: "ns"}
}

func (r Row) against(t Target) Row {
	r.Must, r.Aim, r.Least, r.Target = t.Must, t.Aim, t.Least, t.Set
	r.Missed = t.Set && !t.meets(r.Ratio, t.Must)
	if t.Promise != "" && !t.meets(r.Ratio, t.Promised) {
		r.Breaks = t.Promise
	}
	return r
}

// Nanos is a time with about three digits.
func Nanos(ns float64) string {
	switch {
	case math.IsNaN(ns) || math.IsInf(ns, 0):
		return "?"
	case ns < 100:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1000:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < float64(time.Millisecond):
		return fmt.Sprintf("%.3g µs", ns/1e3)
	case ns < float64(time.Second):
		return fmt.Sprintf("%.3g ms", ns/1e6)
	}
	return fmt.Sprintf("%.3g s", ns/1e9)
}

// Number is a figure with about three digits, without an exponent.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e15:
		return fmt.Sprintf("%.0f", v)
	case a < 0.01:
		return fmt.Sprintf("%.4f", v)
	case a < 1:
		return fmt.Sprintf("%.3f", v)
	case a < 100:
		return fmt.Sprintf("%.2f", v)
	case a < 1000:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
