package difftest

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// TestDifferential: of every submission the driver says what the model says, and charges
// what the model charges. CAPGPU_DIFFERENTIAL is how many there are.
func TestDifferential(t *testing.T) {
	o := Options{Submissions: 2_000_000, Workers: 2, Seed: 1}
	if raceEnabled {
		o.Submissions = 100_000
	}
	for name, to := range map[string]*uint64{"CAPGPU_DIFFERENTIAL": &o.Submissions, "CAPGPU_SEED": &o.Seed} {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.ParseFloat(s, 64)
			require.NoError(t, err)
			*to = uint64(n)
		}
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	t.Logf("%+v: %.2f million a second", r, float64(r.Submissions)/r.Took.Seconds()/1e6)
	require.Greater(t, r.Accepted, r.Submissions/8, "too little is good for the test to mean much")
	require.Less(t, r.Accepted, r.Submissions*7/8, "too little is bad")
	require.Greater(t, r.Here, r.Accepted/8, "too little runs on the caller's goroutine")
	require.Less(t, r.Here, r.Accepted*7/8, "too little is submitted")
	require.NotZero(t, r.Breaches)
	require.NotZero(t, r.Scribbled)
}
