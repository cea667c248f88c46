package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
	"capgpu/model/peers/peerstest"
)

func TestMain(m *testing.M) {
	peerstest.RunIfCrowd()
	os.Exit(leakcheck.Run(m, func() {
		if builtDir != "" {
			os.RemoveAll(builtDir)
		}
	}))
}

// built is the folder of the commands, built at the first use.
var built = sync.OnceValues(buildAll)

var builtDir string // to be removed

func buildAll() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "cg"); err != nil {
		return "", err
	}
	builtDir = dir
	for _, name := range []string{"device-manager", "gpu-mock", "gpu-gate", "model-server"} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, name), "capgpu/cmd/"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed; only static programs are confined
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", name, err, out)
		}
	}
	return dir, nil
}

func noEnv(string) string { return "" }

// command runs the command in this process, for runs that end by themselves.
func command(args ...string) (status int, out, errs string) {
	var stdout, stderr bytes.Buffer
	status = runCommand(args, noEnv, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestHelpAndVersion(t *testing.T) {
	status, out, errs := command("--help")
	require.Zero(t, status)
	require.Empty(t, errs)
	for _, f := range []string{"model", "tokenizer", "name", "socket", "device", "context", "sequences", "positions", "batch", "wait", "listen", "rpc", "token-file", "waiting", "patience", "drain", "json", "version", "help"} {
		require.Contains(t, out, "--"+f+" ")
	}
	for _, line := range strings.Split(out, "\n") {
		require.LessOrEqual(t, len(line), 88)
	}
	require.NotContains(t, out, "%!")
	status, out, _ = command("--version")
	require.Zero(t, status)
	require.Contains(t, out, "model-server ")
}

func TestWrongCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		"--model is missing":                             {},
		"unknown flag --no-such-flag":                    {"--no-such-flag"},
		`unexpected argument "x"`:                        {"--model", "m", "x"},
		"--sequences is -1":                              {"--model", "m", "--sequences", "-1"},
		"--drain is -1s":                                 {"--model", "m", "--drain", "-1s"},
		"--listen 8080: it is HOST:PORT":                 {"--model", "m", "--listen", "8080"},
		"--listen unix: names no path":                   {"--model", "m", "--listen", "unix:"},
		"--listen :8080: whoever reaches":                {"--model", "m", "--listen", ":8080"},
		"--listen 0.0.0.0:8080: whoever reaches":         {"--model", "m", "--listen", "0.0.0.0:8080"},
		"--listen [::]:80: whoever reaches":              {"--model", "m", "--listen", "127.0.0.1:80", "--listen", "[::]:80"},
		"--listen example.org:80: whoever":               {"--model", "m", "--listen", "example.org:80"},
		`--listen unix:"@name": a socket without a file`: {"--model", "m", "--listen", "unix:@name"},
		`--listen unix:"\x00name": a socket`:             {"--model", "m", "--listen", "unix:\x00name"},
		`--rpc "@name": a socket without a file`:         {"--model", "m", "--rpc", "@name"},
		"leaves nobody to serve":                         {"--model", "m", "--listen", "none"},
	} {
		status, _, errs := command(args...)
		require.Equal(t, exitUsage, status, args)
		require.Contains(t, errs, want)
		require.Contains(t, errs, "see model-server --help")
	}

	status, _, errs := command("--model", filepath.Join(t.TempDir(), "none.gguf"))
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "open the model: ")
	require.Contains(t, errs, "none.gguf")
	status, _, errs = command("--model", smallModel(t), "--batch", "100000")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "batch: 100000 is not within")
}

func TestOptions(t *testing.T) {
	env := func(name string) string { return map[string]string{"CAPGPU_SOCKET": "/a.sock"}[name] }
	o, _, err := parseOptions([]string{"--model", "m", "--listen", "127.0.0.1:1", "--listen", "unix:/x", "--listen", "[::1]:2"}, env, nil)
	require.NoError(t, err)
	require.Equal(t, "/a.sock", o.socket)
	require.Len(t, o.listen, 3)
	o, _, err = parseOptions([]string{"--model", "m", "--socket", "/b", "--patience", "0s"}, env, nil)
	require.NoError(t, err)
	require.Equal(t, "/b", o.socket)
	require.Equal(t, []string{defaultListen}, o.listen)
	require.Negative(t, o.patience)
	_, _, err = parseOptions([]string{"--model", "m", "--listen", "0.0.0.0:1", "--token-file", "t"}, env, nil)
	require.NoError(t, err)
}

func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}

	good := strings.Repeat("x", leastToken)
	for _, end := range []string{"", "\n", "\r\n"} {
		write(good+end, 0o640)
		token, err := readToken(path)
		require.NoError(t, err)
		require.Equal(t, good, token)
	}

	for want, text := range map[string]string{
		"a token has 16 to 4096 characters, not 15": good[1:],
		"not 4098":      strings.Repeat("x", mostToken+100),
		"visible ASCII": good + "\nmore",
		"ASCII":         good + "é",
	} {
		write(text, 0o600)
		_, err := readToken(path)
		require.ErrorContains(t, err, want)
	}

	write(good, 0o604)
	_, err := readToken(path)
	require.ErrorContains(t, err, "every user can read")
	_, err = readToken(path + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)
	token, err := readToken("")
	require.NoError(t, err)
	require.Empty(t, token)
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(path)
	require.NoError(t, err)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), st.Mode().Perm())
	_, err = listenUnix(path)
	require.ErrorContains(t, err, "another process serves it")
	l.SetUnlinkOnClose(false)
	l.Close()
	l, err = listenUnix(path)
	require.NoError(t, err, "what a killed server has left is replaced")
	l.Close()
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = listenUnix(path)
	require.ErrorContains(t, err, "is no socket")
	require.FileExists(t, path)
}

// An address that cannot be listened on is reported, and sockets that were opened
// before are closed.
func TestListenErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	opened, none := filepath.Join(dir, "opened"), filepath.Join(dir, "none", "x")
	for address, args := range map[string][]string{
		taken.Addr().String(): {"--listen", "unix:" + opened, "--listen", taken.Addr().String()},
		none:                  {"--listen", "unix:" + opened, "--listen", "unix:" + none},
		none + " ":            {"--listen", "unix:" + opened, "--rpc", none},
	} {
		status, _, errs := command(append([]string{"--model", smallModel(t)}, args...)...)
		require.Equal(t, 1, status, errs)
		require.Contains(t, errs, strings.TrimSpace(address))
		require.NoFileExists(t, opened)
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, name: "m"}
	at := time.Unix(1000, 0)
	p.bytes(0, 100<<20, at)
	p.bytes(50<<20, 100<<20, at.Add(quietFor/2))
	require.Empty(t, out.String(), "what is quick is not told")
	p.clear()
	require.Empty(t, out.String())
	p.bytes(60<<20, 100<<20, at.Add(quietFor))
	require.Equal(t, "\r\x1b[Kloading m   60%  60.0 MiB of 100.0 MiB", out.String())
	p.bytes(61<<20, 100<<20, at.Add(quietFor+redrawEach/2))
	fmt.Fprint(p, "a line of the log\n")
	p.clear()
	require.True(t, strings.HasSuffix(out.String(), "100.0 MiB\r\x1b[Ka line of the log\n"), "%q", out.String())
	require.Equal(t, "a??b", visible("a\x1b\nb"))
}

func TestNoService(t *testing.T) {
	status, _, errs := command("--model", smallModel(t), "--socket", filepath.Join(t.TempDir(), "none"), "--wait", "0s", "--listen", "unix:"+filepath.Join(t.TempDir(), "h"))
	require.Equal(t, exitUnreachable, status)
	require.Contains(t, errs, "E_DISCONNECTED")
	require.Contains(t, errs, "no such file")
}

// A model's name from a file is one line of the status for systemd.
func TestStatusLine(t *testing.T) {
	require.Equal(t, "STATUS=loading x?READY=1?MAINPID=1", statusLine("loading x\nREADY=1\rMAINPID=1"))
}
