package manager

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lineLog remembers lines as "LEVEL MESSAGE KEY=VALUE …".
type lineLog struct {
	shared *lineLines
	attrs  string
}

type lineLines struct {
	mu    sync.Mutex
	lines []string
}

func (l lineLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l lineLog) WithGroup(name string) slog.Handler               { return lineLog{l.shared, l.attrs + " " + name} }

func (l lineLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		l.attrs += " " + a.String()
	}
	return l
}

func (l lineLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message + l.attrs
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.shared.lines = append(l.shared.lines, line)
	return nil
}

func newLineLog() (*lineLines, *PacedLog) {
	to := &lineLines{}
	return to, NewPacedLog(lineLog{shared: to})
}

// A flood of one cause makes a few lines, and counts that add up; lines of other causes pass.
func TestPacedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, paced := newLineLog()
		log := slog.New(paced).With("tenant", "a")
		const each = 1000
		for i := range 60 {
			for range each {
				log.Info("refused", "uid", 7, "n", i)
			}
			time.Sleep(time.Second)
		}
		log.Info("refused", "uid", 8)
		log.With("tenant", "b").Warn("refused", "uid", 7)
		log.Error("something else")
		log.Debug("not even counted")
		paced.Close()
		log.Info("refused", "uid", 7, "after", "the end")

		seen, told := 0, 0
		for _, line := range to.lines {
			n, i := 0, 0
			if _, err := fmt.Sscanf(line, "INFO lines were left out tenant=a like=refused lines=%d uid=7", &n); err == nil {
				told += n
			} else if _, err := fmt.Sscanf(line, "INFO refused tenant=a uid=7 n=%d", &i); err == nil {
				seen++
			}
		}
		require.Equal(t, 60*each, seen+told)
		require.Equal(t, peerBurst+5, seen, "and one in 10 s")
		require.Len(t, to.lines, seen+6+4)
		for _, line := range []string{"INFO refused tenant=a uid=8", "WARN refused tenant=a tenant=b uid=7", "ERROR something else tenant=a", "INFO refused tenant=a uid=7 after=the end"} {
			require.Contains(t, to.lines, line)
		}
	})
}

// All gates of a tenant share one limit: a stream that ends its gate is one line of it.
func TestGatesArePacedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, paced := newLineLog()
		tenant := slog.New(paced).With("tenant", "a")
		for pid := range 500 {
			tenant.With("process", "gate", "pid", pid).Info("said", "line", "gate ended")
		}
		for pid := range 500 { // as ownedHandler logs it
			slog.New(paced).With("process", "gate", "pid", pid).Info("said", "line", "gate ended", "tenant", "b", "uid", 6)
		}
		for pid := range 500 {
			tenant.With("uid", 5).With("process", "gate", "pid", pid).Info("said", "line", "gate ended")
		}
		slog.New(paced).With("device", "mock0", "process", "driver", "pid", 3).Info("said", "line", "of the driver")
		time.Sleep(2 * leftOutAfter)
		synctest.Wait()
		require.Len(t, to.lines, causeBurst+peerBurst+1+3)
		require.Contains(t, to.lines, fmt.Sprintf("INFO lines were left out tenant=a process=gate pid=%d like=said lines=%d", causeBurst, 500-causeBurst))
		require.Contains(t, to.lines, fmt.Sprintf("INFO lines were left out process=gate pid=%d tenant=b like=said lines=%d uid=6", peerBurst, 500-peerBurst))
		require.Contains(t, to.lines, "INFO lines were left out tenant=a uid=5 process=gate pid=0 like=said lines=500 uid=5")
	})
}

// A peer does not get more lines by being many: a user with 65,536 numbers, say.
func TestPacedLogForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, paced := newLineLog()
		log := slog.New(paced)
		const users, messages = 5000, 3000
		for uid := range users {
			log.Info("refused", "uid", uid)
		}
		require.Len(t, to.lines, causeBurst)
		for i := range messages {
			log.With("tenant", "t"+strconv.Itoa(i)).Info("refused")
		}
		require.Less(t, len(to.lines), maxCauses+2*causeBurst)
		p := paced.paces
		p.mu.Lock()
		causes, peers, counts := len(p.causes), len(p.peers), len(p.leftOut)
		p.mu.Unlock()
		require.LessOrEqual(t, causes, maxCauses+1)
		require.LessOrEqual(t, peers, maxPeers+1)
		require.LessOrEqual(t, counts, 2*(maxPeers+1))
		paced.Close()
		seen := 0
		for _, line := range to.lines {
			n := 1
			if fields := countOf(line); fields > 0 {
				n = fields
			}
			seen += n
		}
		require.Equal(t, users+messages, seen)
		require.Less(t, len(to.lines), maxCauses+2*causeBurst+maxPeers+3)
	})
}

// countOf returns the count of a line about suppressed lines, or 0.
func countOf(line string) int {
	for i := range line {
		var n int
		if _, err := fmt.Sscanf(line[i:], " lines=%d", &n); err == nil {
			return n
		}
	}
	return 0
}
