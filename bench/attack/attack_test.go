package attack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The attackers are this test binary.
func TestMain(m *testing.M) {
	RunIfAttacker()
	os.Exit(m.Run())
}

// Every attack runs at least once: the victim does not notice, the driver lives,
// and nothing of the attacker is left.
func TestEveryAttack(t *testing.T) {
	bin := t.TempDir()
	build, err := exec.Command("../../tools/build.sh", bin, "device-manager", "gpu-mock", "gpu-gate", "model-server").CombinedOutput()
	require.NoError(t, err, "%s", build)
	rows, err := Run(t.Context(), Options{Bin: bin, Seed: 1, For: time.Second, Say: func(format string, args ...any) { t.Logf(format, args...) }})
	require.NoError(t, err)
	var table bytes.Buffer
	require.True(t, Print(&table, rows), table.String())
	classes := map[int]bool{}
	for _, r := range rows {
		classes[r.Class] = true
	}
	for class := 1; class <= 10; class++ {
		require.True(t, classes[class], "no attack of class %d", class)
	}
}

// Every violation is reported: a victim's error, a charge, a dead driver, an answer
// without a type.
func TestBadIsTold(t *testing.T) {
	good := Row{Attack: All[0], Tally: Tally{Attempts: 1, Answers: map[string]int{"E_STALE": 1}}, Work: 1}
	require.Empty(t, good.Bad())
	for what, spoil := range map[string]func(*Row){
		"the victim had":    func(r *Row) { r.Errors = []error{fmt.Errorf("no")} },
		"nothing done":      func(r *Row) { r.Work = 0 },
		"left behind":       func(r *Row) { r.Charges = "1 of buffers" },
		"the service holds": func(r *Row) { r.Grown = footprint{descriptors: 99}.more(footprint{}) },
		"a newcomer waits": func(r *Row) {
			r.Slower = waits{Direct: [2]float64{3}}.slower("meanwhile", waits{Direct: [2]float64{1}})
		},
		"the audit logs":      func(r *Row) { r.Lost = "1 records of audit.log are gone" },
		"the driver has died": func(r *Row) { r.Replace = true },
		"nothing was tried":   func(r *Row) { r.Attempts = 0 },
		untyped:               func(r *Row) { r.Answers = map[string]int{answerOf(fmt.Errorf("what")): 1} },
	} {
		row := good
		spoil(&row)
		require.Len(t, row.Bad(), 1)
		require.Contains(t, row.Bad()[0], what)
		require.False(t, Print(&bytes.Buffer{}, []Row{row}))
	}
}
