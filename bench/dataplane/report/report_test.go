package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/dataplane/paired"
)

func example() *Report {
	return &Report{
		When: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), Machine: Machine{CPU: "a kind", CPUs: 2, Kernel: "6.1", Go: "go1.26", Service: "device-manager 1a2b3c"},
		Rows: []Row{
			Ratio("P1", "launch / spin", paired.Result{Ratio: 2.3456, Low: 2.1, High: 2.9, Ours: 250, Peer: 110, Pairs: 200}, AtMost(2.5, 1.6)),
			Ratio("P1", "times faster", paired.Result{Ratio: 149, Low: 100, High: 200, Ours: 250, Peer: 57e3, Pairs: 200}, AtLeast(150, 300)),
			Value("P3", "lost wakes in 10 doorbells", "0", "", 0, "", AtMost(0, 0)),
			Ratio("P9", "tail beside a neighbour", paired.Result{Ratio: 1.3, Low: 1.2, High: 1.4, Ours: 130, Peer: 100, Pairs: 200}, AtMost(1.5, 1.1).Promises("T8", 1.25)),
			Absolute("P2", "launch", 120),
		},
		Spins:  map[string]float64{"P1": 110},
		Curves: []CurveSummary{Summarize(Curve{Name: "spin", Nanos: []float64{100, 110, 5e6}, Count: 3})},
	}
}

func TestTargets(t *testing.T) {
	r := example()
	require.False(t, r.Rows[0].Missed)
	require.True(t, r.Rows[1].Missed)
	require.False(t, r.Rows[2].Missed)
	require.False(t, r.Rows[3].Missed, "there is no target")
	require.True(t, Value("P3", "", "1", "", 1, "", AtMost(0, 0)).Missed)
	require.Empty(t, r.Rows[0].Breaks, "no promise")
	require.Equal(t, "T8", r.Rows[3].Breaks)
	require.False(t, r.Rows[3].Missed)
	promised := AtMost(1.5, 1.1).Promises("T8", 1.25)
	require.Empty(t, Value("P9", "", "", "", 1.25, "", promised).Breaks)
	worse := Value("P9", "", "", "", 1.6, "", promised)
	require.Equal(t, "MISSED, breaks T8", worse.cells()[len(head)-1])
	require.Equal(t, "T8", Ratio("P9", "", paired.Result{Ratio: math.NaN()}, promised).Breaks)
	require.True(t, Ratio("P1", "", paired.Result{Ratio: math.NaN()}, AtMost(1, 1)).Missed)
	require.True(t, Ratio("P1", "", paired.Result{Ratio: math.NaN()}, AtLeast(1, 1)).Missed)
}

// TestOnly: a page shows its own figures.
func TestOnly(t *testing.T) {
	r := example().Only("P1", "P9")
	require.Len(t, r.Rows, 3)
	require.Equal(t, map[string]float64{"P1": 110, "P9": 0}, r.Spins)
	require.Equal(t, example().Machine, r.Machine)
	require.Empty(t, r.Curves)
	require.Empty(t, example().Only().Rows)
}

// The time of a token is shown as tokens per second, and more of them is better.
func TestSpeed(t *testing.T) {
	r := Speed("P4", "tokens/s / peer", paired.Result{Ratio: 1.25, Low: 1, High: 2, Ours: 50_000, Peer: 40_000, Pairs: 20}, AtLeast(0.93, 0.99))
	require.Equal(t, "20000/s", r.Ours)
	require.Equal(t, "25000/s", r.Peer)
	require.Equal(t, [3]float64{0.8, 0.5, 1}, [3]float64{r.Ratio, r.Low, r.High})
	require.True(t, r.Missed)
	require.Equal(t, "?", PerSecond(0))
	require.Equal(t, "?", PerSecond(math.NaN()))
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, example().WriteTable(&out))
	require.Equal(t, `    metric                      ours    peer    ratio                must    aim
P1  launch / spin               250 ns  110 ns  2.35 (2.10 to 2.90)  ≤ 2.50  ≤ 1.60
P1  times faster                250 ns  57 µs   149 (100 to 200)     ≥ 150   ≥ 300   MISSED
P3  lost wakes in 10 doorbells  0               0                    0
P9  tail beside a neighbour     130 ns  100 ns  1.30 (1.20 to 1.40)  ≤ 1.50  ≤ 1.10  breaks T8
P2  launch                      120 ns          120 ns
`, out.String())
}

func TestLastLine(t *testing.T) {
	r := example()
	require.Equal(t, "P1 launch / spin: 2.35", r.LastLine())
	require.Empty(t, (&Report{}).LastLine())
}

func TestJSON(t *testing.T) {
	r := example()
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	var back Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, r, &back)
	require.Contains(t, out.String(), `"missed": true`)
}

func TestDocument(t *testing.T) {
	r := example()
	text, err := r.InDocument("before\n" + beginMark + "\nold\n" + endMark + "\nafter\n")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(text, "before\n"+beginMark))
	require.True(t, strings.HasSuffix(text, endMark+"\nafter\n"))
	require.NotContains(t, text, "old")
	require.Contains(t, text, "Measured on 22 November 2026: device-manager 1a2b3c on 2 CPUs of a kind")
	require.Contains(t, text, "| P1 | launch / spin | 250 ns | 110 ns | 2.35 (2.10 to 2.90) | ≤ 2.50 | ≤ 1.60 |  |")
	require.Contains(t, text, "| spin | 110 ns | 5 ms | 5 ms |")
	again, err := r.InDocument(text)
	require.NoError(t, err)
	require.Equal(t, text, again)
	_, err = r.InDocument("no place")
	require.ErrorContains(t, err, "no place for the table")
}

func TestNumbers(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "12": 12, "0.0043": 0.00432, "0.217": 0.2169, "1.60": 1.6, "22.22": 22.222, "149.6": 149.6, "1235": 1234.9} {
		require.Equal(t, want, Number(v))
	}
	for want, v := range map[string]float64{"12.3 ns": 12.34, "123 ns": 123.4, "12.3 µs": 12345, "1.23 ms": 1234567, "2 s": 2e9, "?": math.NaN()} {
		require.Equal(t, want, Nanos(v))
	}
}

func TestPicture(t *testing.T) {
	var fast, slow []float64
	for i := range 10_000 {
		fast = append(fast, 100+float64(i)/100)
		slow = append(slow, 40_000+float64(i))
	}

	slow[len(slow)-1] = 1e12 // beyond the axis
	curves := []Curve{{Name: "ours & <theirs>", Nanos: fast}, {Name: "slow", Nanos: slow}, {Name: "as slow", Nanos: slow}, {Name: "once", Nanos: []float64{7}}}
	var out bytes.Buffer
	require.NoError(t, WritePicture(&out, "a title", curves))
	texts := map[string]bool{}
	lines := 0
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "it is well-formed")
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "polyline" {
				lines++
			}
		case xml.CharData:
			texts[string(token)] = true
		}
	}

	require.Equal(t, len(curves), lines)
	for _, want := range []string{"a title", "ours & <theirs>", "slow", "99.99 %", "100 ns", "median 150 ns"} {
		require.True(t, texts[want], "%q in %v", want, texts)
	}

	require.Error(t, WritePicture(&out, "", nil))
	require.Error(t, WritePicture(&out, "", []Curve{{Name: "empty"}}))
}
