package lane

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/lane/onelane"
)

// TestFile compares the engine with the model on the shader FILE, with a workgroup
// of BLOCK ("16 2 2") if it is the launch's.
func TestFile(t *testing.T) {
	name := os.Getenv("FILE")
	if name == "" {
		t.Skip("FILE names no shader")
	}
	source, err := os.ReadFile(name)
	require.NoError(t, err)
	p := describe(t, glsl(t, string(source)))
	block := p.Info.Block
	if s := os.Getenv("BLOCK"); s != "" {
		_, err := fmt.Sscan(s, &block.X, &block.Y, &block.Z)
		require.NoError(t, err)
	}
	grid := program.Dim3{X: 1, Y: 2, Z: 1}
	bind := func() (b [][]byte) {
		r := rand.New(rand.NewPCG(1, 2))
		for range 16 {
			w := make([]uint32, 1<<16)
			for i := range w {
				w[i] = r.Uint32N(1000)
			}
			b = append(b, words(w...))
		}
		return b
	}
	inline := make([]byte, 128)
	for i := range inline {
		inline[i] = byte(i % 4 / 3 * i)
	}
	want := bind()
	trap, err := onelane.Run(p, &onelane.Launch{Block: block, Grid: grid, Bindings: want, Inline: inline})
	require.NoError(t, err)
	for _, check := range []bool{false, true} {
		k, err := Compile(p, Options{Block: block, Check: check})
		require.NoError(t, err)
		got := bind()
		r := k.NewWorker().Run(&Launch{Grid: grid, Bindings: got, Inline: inline}, 0, 2, nil)
		require.Equal(t, trap.Kind, r.Trap.Kind)
		for b := range want {
			require.Equal(t, asWords(want[b]), asWords(got[b]), "binding %d, check %v", b, check)
		}
	}
}
