package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The picture's own units are pixels if it is not scaled.
const (
	pictureWidth, pictureHeight        = 880, 520
	plotLeft, plotRight                = 80, 700
	plotTop, plotBottom                = 60, 460
	labelLeft, labelGap, curveSamples  = plotRight + 12, 17, 400
	slowestDecade, fastestDecade, tail = 9, 1, 4 // 10^1 to 10^9 ns at most; 99.99 %
)

// colors are Okabe and Ito's, which colour-blind readers can tell apart.
var colors = []string{"#d55e00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#000000"}

// WritePicture draws latencies against percentiles, both in log scales, so that the
// tail is visible. Each curve ends in its name and its median.
func WritePicture(w io.Writer, title string, curves []Curve) error {
	p := picture{low: math.Inf(1), high: math.Inf(-1)}
	for _, c := range curves {
		if len(c.Nanos) == 0 {
			return fmt.Errorf("the curve %q is empty", c.Name)
		}
		p.low, p.high = min(p.low, c.At(0)), max(p.high, c.At(1-math.Pow(10, -tail)))
	}

	if len(curves) == 0 {
		return fmt.Errorf("there is nothing to draw")
	}

	p.low = math.Pow(10, max(math.Floor(math.Log10(p.low)), fastestDecade))
	p.high = math.Pow(10, min(math.Ceil(math.Log10(p.high)), slowestDecade))
	if p.high <= p.low {
		p.high = p.low * 10
	}

	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13">`+"\n", pictureWidth, pictureHeight, pictureWidth, pictureHeight)
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, pictureHeight)
	p.text(plotLeft, 30, "start", "#222222", `font-size="17"`, title)
	p.axes()
	for i, c := range curves {
		p.curve(c, colors[i%len(colors)])
	}

	p.labels(curves)
	p.printf("</svg>\n")
	_, err := io.WriteString(w, p.out.String())
	return err
}

type picture struct {
	out       strings.Builder
	low, high float64 // nanoseconds at the ends of the axis
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *picture) text(x, y float64, anchor, color, more, text string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" %s>`, x, y, anchor, color, more)
	_ = xml.EscapeText(&p.out, []byte(text)) // a strings.Builder takes all
	p.printf("</text>\n")
}

// x is the position of a place of the order (0 to 1): each nine is as wide as the
// one before.
func (p *picture) x(q float64) float64 {
	nines := -math.Log10(max(1-q, math.Pow(10, -tail)))
	return plotLeft + (plotRight-plotLeft)*nines/tail
}

func (p *picture) y(nanos float64) float64 {
	nanos = min(max(nanos, p.low), p.high)
	return plotBottom - (plotBottom-plotTop)*math.Log10(nanos/p.low)/math.Log10(p.high/p.low)
}

func (p *picture) axes() {
	for nanos := p.low; nanos <= p.high*1.01; nanos *= 10 {
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#cccccc"/>`+"\n", plotLeft, p.y(nanos), plotRight, p.y(nanos))
		p.text(plotLeft-8, p.y(nanos)+4, "end", "#444444", "", decade(nanos))
		for m := 2.0; m < 10 && nanos < p.high*0.99; m++ {
			p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#eeeeee"/>`+"\n", plotLeft, p.y(nanos*m), plotRight, p.y(nanos*m))
		}
	}
	for _, mark := range []struct {
		at   float64
		text string
	}{{0, "0 %"}, {0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}} {
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#cccccc"/>`+"\n", p.x(mark.at), plotTop, p.x(mark.at), plotBottom)
		p.text(p.x(mark.at), plotBottom+20, "middle", "#444444", "", mark.text)
	}
	p.text((plotLeft+plotRight)/2, plotBottom+44, "middle", "#444444", "", "of the round trips take at most")
}

func decade(nanos float64) string {
	switch d := math.Round(math.Log10(nanos)); {
	case d >= 9:
		return fmt.Sprintf("%.0f s", math.Pow(10, d-9))
	case d >= 6:
		return fmt.Sprintf("%.0f ms", math.Pow(10, d-6))
	case d >= 3:
		return fmt.Sprintf("%.0f µs", math.Pow(10, d-3))
	}
	return fmt.Sprintf("%.0f ns", nanos)
}

func (p *picture) curve(c Curve, color string) {
	p.printf(`<polyline fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round" points="`, color)
	// Not beyond the resolution of this many samples.
	furthest := min(math.Log10(float64(len(c.Nanos))), tail)
	for i := range curveSamples {
		q := 1 - math.Pow(10, -furthest*float64(i)/(curveSamples-1))
		p.printf("%.1f,%.1f ", p.x(q), p.y(c.At(q)))
	}
	p.printf(`"/>` + "\n")
}

// labels names the curves beside their ends, in the order of the ends, without
// overlap.
func (p *picture) labels(curves []Curve) {
	at := make([]float64, len(curves))
	order := make([]int, len(curves))
	for i, c := range curves {
		order[i] = i
		at[i] = p.y(c.At(1 - math.Pow(10, -tail)))
	}

	for i := range order { // a handful: the simplest sort suffices
		for j := i + 1; j < len(order); j++ {
			if at[order[j]] < at[order[i]] {
				order[i], order[j] = order[j], order[i]
			}
		}
	}

	const height = 2*labelGap + 4 // name and median
	for i, n := range order {
		if i > 0 {
			at[n] = max(at[n], at[order[i-1]]+height)
		} else {
			at[n] = max(at[n], plotTop)
		}
	}

	if over := at[order[len(order)-1]] + labelGap - plotBottom; over > 0 {
		last := math.Inf(1)
		for i := len(order) - 1; i >= 0; i-- {
			at[order[i]] = min(at[order[i]], plotBottom-labelGap, last-height)
			last = at[order[i]]
		}
	}

	for i, c := range curves {
		color := colors[i%len(colors)]
		p.text(labelLeft, at[i]+4, "start", color, `font-weight="bold"`, c.Name)
		p.text(labelLeft, at[i]+4+labelGap-2, "start", "#444444", `font-size="11"`, "median "+Nanos(c.At(0.5)))
	}
}
