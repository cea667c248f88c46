package native

// The activation of a batch with the tanh approximation of GELU: gelu(a)·b, where
// gelu(a) = a·sigmoid(t) with t = 2·sqrt(2/π)·(a + 0.044715·a³). It is swiglu's t·sigmoid(t)
// times a/t·b.

const (
	geluScale = 1.5957691216057308 // 2·sqrt(2/π)
	geluCube  = 0.044715
	geluMost  = 20 // beyond, the sigmoid is 0 or 1
	geluStep  = 512
)

var gegluRowsPace = pace{words: 6 << 10, exps: true}

var gegluRowsBody = &Body{
	Items: swigluRowsBody.Items,
	Run: func(c *Call, lo, hi uint64) bool {
		n := c.inline(0)
		x, y := c.f32(0), c.f32(1)
		for ; lo < hi; lo++ {
			row := x[lo*2*n:][:2*n]
			geglu(y[lo*n:][:n], row[:n], row[n:])
		}
		return true
	},
	Grain: func(c *Call) uint64 { return grainOf(64 * c.inline(0)) },
	Nanos: func(c *Call) (uint64, bool) {
		rows := swigluRowCount(c)
		return gegluRowsPace.nanos(rows, rows*c.inline(0))
	},
}

func geglu(y, a, b []float32) {
	var ts, bs [geluStep]float32
	for len(y) > 0 {
		n := min(len(y), geluStep)
		t, f := ts[:n], bs[:n]
		for i, v := range a[:n] {
			v := float64(v)
			c := min(max(v, -geluMost), geluMost)
			s := geluScale * (1 + geluCube*c*c)
			t[i] = narrow(c * s)
			if c != v {
				s *= c / v
			}
			f[i] = narrow(float64(b[i]) / s)
		}
		swiglu(y[:n], t, f)
		y, a, b = y[n:], a[n:], b[n:]
	}
}
