package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An alarm goes off once for each time that it is set, not before its time, and not when it
// was set anew meanwhile.
func TestAlarm(t *testing.T) {
	a := newAlarm(true)
	require.NotNil(t, a.f)
	rang, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		a.run(func() { rang <- struct{}{} })
	}()
	for range 3 {
		start := time.Now()
		a.set(300 * time.Microsecond)
		<-rang
		require.GreaterOrEqual(t, time.Since(start), 300*time.Microsecond)
	}
	a.set(time.Hour)
	a.set(-1)
	<-rang
	a.close()
	<-ended
	none := newAlarm(false)
	none.set(1)
	none.run(nil)
	none.close()
}
