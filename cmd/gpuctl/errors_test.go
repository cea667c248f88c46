package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/gpuerr"
)

func TestEveryErrorHasAdvice(t *testing.T) {
	errs := []error{
		usagef("bad"), errors.New("anything"), context.DeadlineExceeded, &audit.Damage{Reason: "bad"},
		&dialError{path: "x.sock", err: errors.New("anything")}, &dialError{path: "x.sock", err: context.DeadlineExceeded}, &dialError{path: "x.sock", err: fs.ErrPermission},
	}

	for _, code := range gpuerr.Codes() {
		errs = append(errs, code, gpuerr.New(code, "message"), &dialError{path: "x.sock", err: code})
	}

	for _, errno := range []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EROFS, unix.EISDIR, unix.ENOSPC, unix.EIO} {
		errs = append(errs, &fs.PathError{Op: "open", Path: "x", Err: errno}, &fs.PathError{Op: "write", Path: "x", Err: errno})
	}

	for _, whom := range []peer{toOperator, toModelServer} {
		for _, err := range []error{fs.ErrNotExist, fs.ErrPermission, unix.ECONNREFUSED, unix.EPROTOTYPE, context.DeadlineExceeded, errors.New("anything")} {
			errs = append(errs, &dialError{path: "x.sock", err: err, whom: whom})
		}
	}

	a := &app{command: "gpuctl run"}
	for _, err := range errs {
		r := a.reportOf(context.Background(), err)
		require.NotZero(t, r.exit, "%v", err)
		require.NotEmpty(t, r.Message, "%v", err)
		require.Regexp(t, `\.$`, r.Hint, "%v", err)
	}

	require.Equal(t, pathHint(&fs.PathError{Op: "open", Err: unix.ENOENT}),
		a.reportOf(context.Background(), gpuerr.New(gpuerr.IO, "read the log: open x: %v", unix.ENOENT)).Hint, "the cause is known by its text only")
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	require.NotEmpty(t, a.reportOf(interrupted, interrupted.Err()).Hint)
}

func TestWantsJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"": false, "devices": false, "devices --json": true, "-j": true, "-jx": true, "-xj": true, "--json=true": true,
		"--json=false": false, "-- --json": false, "-dj": false, "-s=j": false, "--in-j": false, "j": false,
	} {
		require.Equal(t, want, wantsJSON(strings.Fields(args)), args)
	}
}

// A user without a connection gets no hint to ask the service.
func TestHintWithoutAConnection(t *testing.T) {
	refusal := gpuerr.Refused("connections", 1, 0)
	refusal.Msg = "all 64 connections are in use: end some programs"
	r := new(app).reportOf(context.Background(), refusal)
	require.NotContains(t, r.Hint+r.Message, "gpuctl budget")
	require.Contains(t, r.Message, "over the limit of connections: 1 asked, 0 available: all 64 connections are in use: end some programs (E_QUOTA)")
}
