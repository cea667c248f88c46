package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/model/peers/peerstest"
)

// besideACrowd starts a server that serves every user; start starts a crowd beside it.
func besideACrowd(t *testing.T, kind string, many int, args ...string) (s *instance, socket string, start func() *peerstest.Crowd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED without root: another user beside this one")
	}

	dir := runDir(t)
	require.NoError(t, os.Chmod(dir, 0o711))
	startManager(t, dir)
	s = startServer(t, dir, "a", smallModel(t), args...).ready()
	socket = filepath.Join(dir, "a.h")
	require.NoError(t, os.Chmod(socket, 0o666))
	return s, socket, func() *peerstest.Crowd {
		t.Helper()
		c, err := peerstest.Start(peerstest.Order{Kind: kind, Socket: socket, Many: many})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Kill() })
		return c
	}
}

// finished is the number of requests that the server has answered.
func (s *instance) finished() uint64 {
	s.t.Helper()
	r, err := s.http.Get("http://x/v1/status")
	require.NoError(s.t, err)
	defer r.Body.Close()
	var st struct{ Totals struct{ Finished uint64 } }
	require.NoError(s.t, json.NewDecoder(r.Body).Decode(&st))
	return st.Totals.Finished
}

// ownAnswers is the number of answers that asksBeside gets.
const ownAnswers = 32

// asksBeside sends a few requests, several at a time so that it always waits for
// one, and is never refused as busy. It returns how many answers others got
// meanwhile.
func (s *instance) asksBeside(want answer) (others uint64) {
	s.t.Helper()
	begun := s.finished()
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range ownAnswers / 4 {
				if a, err := s.ask(question(1, 40)); err != nil || a != want {
					s.t.Errorf("%+v, %v, and alone %+v", a, err, want)
					return
				}
			}
		})
	}

	asking.Wait()
	require.False(s.t, s.t.Failed())
	return s.finished() - begun - ownAnswers
}

// untilAlone waits until the server has no more descriptors than before.
func (s *instance) untilAlone(before int) {
	s.t.Helper()
	s.http.CloseIdleConnections()
	require.Eventually(s.t, func() bool { return s.fds() <= before }, 20*time.Second, 10*time.Millisecond)
}

// A user with hundreds of requests, each under another name, gets no more of the
// model than one that sends one request after the other, and takes none of its
// waiting places.
func TestNamesDoNotCrowdOut(t *testing.T) {
	s, _, start := besideACrowd(t, peerstest.Names, 300, "--sequences", "2")
	want := s.must(question(1, 40))
	s.http.CloseIdleConnections()
	before := s.fds()
	c := start()
	s.untilWaiting(100)
	others := s.asksBeside(want)
	tally, err := c.Stop()
	require.NoError(t, err)
	t.Logf("%d answers of ours, %d of the crowd meanwhile; its statuses: %v", ownAnswers, others, tally)
	require.LessOrEqual(t, others, uint64(3*ownAnswers), "it has half, and what we leave")
	require.Positive(t, tally[http.StatusOK], "it has its own share")
	require.Positive(t, tally[http.StatusTooManyRequests], "and no more")
	s.untilAlone(before)
}

// The same is true of a user with many answers on many Cap'n Proto connections,
// beside one over HTTP.
func TestCallsDoNotCrowdOut(t *testing.T) {
	rpcSocket := filepath.Join(runDir(t), "rpc")
	require.NoError(t, os.Chmod(filepath.Dir(rpcSocket), 0o711))
	s, _, _ := besideACrowd(t, "", 0, "--sequences", "2", "--rpc", rpcSocket)
	require.NoError(t, os.Chmod(rpcSocket, 0o666))
	want := s.must(question(1, 40))
	s.http.CloseIdleConnections()
	before := s.fds()
	c, err := peerstest.Start(peerstest.Order{Kind: peerstest.Calls, Socket: rpcSocket, Many: 60})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Kill() })
	s.untilWaiting(100)
	others := s.asksBeside(want)
	tally, err := c.Stop()
	require.NoError(t, err)
	t.Logf("%d answers of ours, %d of the crowd meanwhile; its statuses: %v", ownAnswers, others, tally)
	require.LessOrEqual(t, others, uint64(3*ownAnswers))
	require.Positive(t, others)
	s.untilAlone(before)
}

// Large bodies that stop coming use up only their user's share of the memory, and
// end.
func TestStalledBodiesDoNotCrowdOut(t *testing.T) {
	s, _, start := besideACrowd(t, peerstest.Bodies, 40)
	s.http.CloseIdleConnections()
	before := s.fds()
	long := strings.Replace(question(1, 4), "{", `{"metadata": "`+strings.Repeat("m", 1<<20)+`", `, 1)
	want := s.must(long)
	c := start()
	begun := time.Now()
	for time.Since(begun) < 7*time.Second { // so that the first of them have ended
		a, err := s.ask(long)
		require.NoError(t, err)
		require.Equal(t, want, a)
	}

	tally, err := c.Stop()
	require.NoError(t, err)
	t.Logf("statuses: %v", tally)
	require.GreaterOrEqual(t, tally[http.StatusRequestTimeout], 12)
	require.Positive(t, tally[http.StatusTooManyRequests])
	s.untilAlone(before)
}

// Silent connections, and those that do not finish a request, take no other user's
// place, not even of one that has been silent for longer; and they end.
func TestSilenceDoesNotCrowdOut(t *testing.T) {
	s, socket, start := besideACrowd(t, peerstest.Silence, 900)
	s.must(question(1, 4))
	s.http.CloseIdleConnections()
	before := s.fds()
	quiet, err := net.Dial("unix", socket)
	require.NoError(t, err)
	defer quiet.Close()

	answers := bufio.NewReader(quiet)
	body := question(1, 4)
	ask := func() {
		_, err = fmt.Fprintf(quiet, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(t, err)
		r, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.StatusCode)
		_, err = io.Copy(io.Discard, r.Body)
		require.NoError(t, err)
	}

	ask()
	c := start()
	ask()
	require.LessOrEqual(t, s.fds(), before+maxConnections*3/4+100, "it has its share, and some are told that it is taken")
	quiet.Close()

	s.must(question(1, 4))
	require.NoError(t, syscall.Kill(c.PID(), syscall.SIGSTOP)) // connections that end from now on stay ended
	s.untilAlone(before)
	require.NoError(t, syscall.Kill(c.PID(), syscall.SIGCONT))
	tally, err := c.Stop()
	require.NoError(t, err)
	t.Logf("statuses: %v", tally)
}
