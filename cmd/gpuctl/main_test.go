package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { leakcheck.Main(m) }

// invocation is one run of gpuctl in a folder of its own.
type invocation struct {
	out, err bytes.Buffer
	exit     int
}

func gpuctl(ctx context.Context, env map[string]string, term bool, args ...string) *invocation {
	var i invocation
	a := &app{out: &i.out, err: &i.err, getenv: func(k string) string { return env[k] }, errIsTerm: term, now: time.Now}
	i.exit = a.run(ctx, args)
	return &i
}

// measured matches values that differ from run to run.
var measured = []struct {
	re  *regexp.Regexp
	put string
}{
	{regexp.MustCompile(`(device time|loading|saving)( +)[0-9.]+ (ns|µs|ms|s)\n`), "$1${2}TIME\n"},
	{regexp.MustCompile(`(throughput +)[0-9.]+ [KMGT]?i?B/s`), "${1}RATE"},
	{regexp.MustCompile(`"(deviceNanos|bytesPerSecond|loadNanos|saveNanos)": [0-9.e+]+`), `"$1": 0`},
	{regexp.MustCompile(`(full|memory|program) +[0-9]+s +`), "$1  AGE  "},
	{regexp.MustCompile(`( +)[0-9.]+ (ns|µs|ms)( +)`), "${1}TIME$3"},
	{regexp.MustCompile(`go1\.[0-9.]+, \w+/\w+`), "go1.X, OS/ARCH"},
	{regexp.MustCompile(`gpuctl \(?[\w.+-]+\)? \(`), "gpuctl VERSION ("},
}

// checkGolden compares exit status, standard output and standard error.
func (i *invocation) checkGolden(t *testing.T, name, dir string, args []string) {
	t.Helper()
	text := "$ gpuctl " + strings.Join(args, " ") + "\n" + i.out.String()
	if i.err.Len() > 0 {
		text += "--- standard error\n" + i.err.String()
	}

	text += "--- exit status " + string(rune('0'+i.exit%10)) + "\n"
	if dir != "" {
		text = strings.ReplaceAll(text, dir, "DIR")
	}

	for _, m := range measured {
		text = m.re.ReplaceAllString(text, m.put)
	}

	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return
	}

	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make it")
	require.Equal(t, string(want), text)
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func npyFile(t npy.DType, shape []uint64, values []byte) []byte {
	return append(npy.AppendHeader(nil, npy.Header{DType: t, Shape: shape}), values...)
}

// writeInputs makes the files that the commands below read.
func writeInputs(t *testing.T, dir string) {
	for name, content := range map[string][]byte{
		"a.npy":      npyFile(npy.F32, []uint64{5}, floats(1, 2, 3, 4, 5)),
		"a4.npy":     npyFile(npy.F32, []uint64{4}, floats(1, 2, 3, 4)),
		"b.bin":      floats(0.5, 0.25, 0, -4, float32(math.Inf(1))),
		"m.npy":      npyFile(npy.F32, []uint64{2, 3}, floats(1, 2, 3, 4, 5, 6)),
		"x.npy":      npyFile(npy.F32, []uint64{3}, floats(1, 10, 100)),
		"u.npy":      npyFile(npy.U32, []uint64{5}, floats(1, 2, 3, 4, 5)),
		"empty.bin":  nil,
		"odd.bin":    {1, 2, 3, 4, 5},
		"short.npy":  npyFile(npy.F32, []uint64{100}, floats(1)),
		"double.npy": bytes.Replace(npyFile(npy.F32, []uint64{5}, make([]byte, 40)), []byte("<f4"), []byte("<f8"), 1),
		"text.npy":   []byte("1 2 3 4 5\n"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o666))
	}
}

func TestCommands(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{
		Mock: mock.Options{Workers: 2},
		Attach: func(a *gpu.Attach) {
			a.TenantLimits[ledger.DeviceMemory] = 64 << 20
			a.TenantLimits[ledger.Sessions] = 4
		},
		Config: func(c *gpu.Config) { c.Strikes.Limit = 1000 },
	})

	dir := t.TempDir()
	writeInputs(t, dir)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666))
	s := svc.Open(t) // so that there is a session
	_, err := s.CreateBuffer(context.Background(), 10000, client.Storage)
	require.NoError(t, err)

	for _, tc := range []struct {
		name string
		args string // DIR is the folder of the inputs
		exit int
	}{
		{"devices", "devices", 0},
		{"devices-json", "devices --json", 0},
		{"devices-describe", "devices --describe", 0},
		{"devices-describe-json", "devices --describe --json", 0},
		{"sessions", "sessions", 0},
		{"budget", "budget", 0},
		{"version", "version", 0},
		{"programs", "programs", 0},
		{"programs-json", "programs --json", 0},
		{"run-vecadd", "run vecadd_f32 --in DIR/a.npy --in DIR/b.bin --out DIR/c.npy", 0},
		{"run-vecadd-json", "run vecadd_f32 --in b=DIR/b.bin --in a=DIR/a.npy --json", 0},
		{"run-saxpy", "run saxpy_f32 --in DIR/a.npy --in DIR/b.bin --inline f32:2 --out y=DIR/y.bin", 0},
		{"run-matvec", "run matvec_f32 --in DIR/m.npy --in DIR/x.npy --inline cols=3 --inline 2 --out-shape 2", 0},
		{"run-fill", "run fill_u32 --inline u32:0xff --out-shape 3x4", 0},
		{"run-random", "run vecadd_f32 --random 1000 --seed 7 --grid 4 --block 64,2", 0},
		{"run-note", "run vecadd_f32 --in DIR/u.npy --in DIR/b.bin", 0},
		{"run-trap", "run trap --in DIR/a.npy", 1},
		{"run-trap-json", "run trap --in DIR/a.npy --json", 1},
		{"run-timeout", "run spin --deadline 20ms", 1},
		{"error-quota", "run vecadd_f32 --random 16777216", 4},
		{"error-quota-json", "run vecadd_f32 --random 16777216 --json", 4},
		{"error-no-program", "run nosuch --random 5", 4},
		{"error-no-device", "run vecadd_f32 --random 5 --device mock7", 4},
		{"error-missing-input", "run vecadd_f32 --in DIR/a.npy", 2},
		{"error-too-many-inputs", "run trap --in DIR/a.npy --in DIR/b.bin", 2},
		{"error-missing-inline", "run saxpy_f32 --random 5", 2},
		{"error-inline", "run saxpy_f32 --random 5 --inline f32:two", 2},
		{"error-inline-type", "run saxpy_f32 --random 5 --inline u32:2", 2},
		{"error-inline-name", "run saxpy_f32 --random 5 --inline b=2", 2},
		{"error-inline-twice", "run saxpy_f32 --random 5 --inline a=2 --inline a=3", 2},
		{"error-inline-many", "run saxpy_f32 --random 5 --inline 2 --inline 3", 2},
		{"error-grid", "run vecadd_f32 --random 5 --grid 0", 2},
		{"error-grid-limit", "run vecadd_f32 --random 5 --grid 100000 --block 32", 4},
		{"error-block-large", "run vecadd_f32 --random 5 --grid 1 --block 100000", 4},
		{"error-type", "run vecadd_f32 --random 5 --type f80", 2},
		{"error-shape", "run fill_u32 --inline u32:1 --out-shape 3x", 2},
		{"error-no-shape", "run fill_u32 --inline u32:1", 2},
		{"error-no-name", "run", 2},
		{"error-no-file", "run vecadd_f32 --in DIR/nosuch.npy --random 5", 2},
		{"error-sizes", "run vecadd_f32 -i DIR/a4.npy -i DIR/b.bin", 2},
		{"error-sizes-random", "run vecadd_f32 --in DIR/a.npy --random 1000", 2},
		{"run-sizes-inout", "run saxpy_f32 --in DIR/a4.npy --in DIR/b.bin --inline f32:2", 0},
		{"run-sizes", "run vecadd_f32 --in DIR/a4.npy --in DIR/b.bin --out-shape 4", 0},
		{"error-no-binding", "run vecadd_f32 --in q=DIR/a.npy --random 5", 2},
		{"error-binding-twice", "run vecadd_f32 --in a=DIR/a.npy --in a=DIR/b.bin", 2},
		{"run-into", "run vecadd_f32 --in c=DIR/a.npy --random 5", 0},
		{"error-binding-not-written", "run vecadd_f32 --random 5 --out a=DIR/a.npy", 2},
		{"error-binding-no-file", "run vecadd_f32 --in a= --random 5", 2},
		{"error-random-zero", "run vecadd_f32 --random 0", 2},
		{"error-random-negative", "run vecadd_f32 --random -1", 2},
		{"error-random-word", "run vecadd_f32 --random many", 2},
		{"error-random-buffer", "run vecadd_f32 --random 999999999999", 2},
		{"error-shape-buffer", "run fill_u32 --inline u32:1 --out-shape 999999999999", 2},
		{"error-save-folder", "run vecadd_f32 --random 5 --out DIR", 1},
		{"error-deadline-negative", "run spin --deadline -1s", 2},
		{"error-command", "bogus", 2},
		{"error-command-json", "--json bogus", 2},
		{"error-devices-json", "devices --bogus --json", 2},
		{"error-random-word-json", "run x --random y -j", 2},
		{"error-argument-json", "run x -jd0 y", 2},
		{"error-no-command", "", 2},
		{"error-no-subcommand", "audit", 2},
		{"error-no-value", "run x --in", 2},
		{"error-no-value-device", "sessions --device", 2},
		{"error-deadline-unit", "run spin --deadline 5", 2},
		{"error-seed", "run vecadd_f32 --random 5 --seed -1", 2},
		{"error-no-log", "audit verify", 2},
		{"error-empty-file", "run vecadd_f32 --in DIR/empty.bin --random 5", 2},
		{"error-odd-file", "run vecadd_f32 --in DIR/odd.bin --random 5", 2},
		{"error-short-file", "run vecadd_f32 --in DIR/short.npy --random 5", 2},
		{"error-double-file", "run vecadd_f32 --in DIR/double.npy --random 5", 2},
		{"error-text-file", "run vecadd_f32 --in DIR/text.npy --random 5", 2},
		{"error-directory", "run vecadd_f32 --in DIR --random 5", 2},
		{"error-pipe", "run vecadd_f32 --in DIR/pipe --random 5", 2},
		{"error-deadline", "run spin --deadline 1h", 2},
		{"error-block-threads", "run vecadd_f32 --random 5 --grid 1 --block 64,64", 4},
		{"error-cannot-save", "run vecadd_f32 --random 5 --out DIR/no/such/c.npy", 1},
		{"error-random-large", "run vecadd_f32 --random 18446744073709551615", 2},
		{"error-flag", "run --nonsense", 2},
		{"help", "--help", 0},
		{"help-run", "run --help", 0},
		{"help-audit", "audit --help", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tc.args, "DIR", dir))
			i := gpuctl(context.Background(), map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, args...)
			require.Equal(t, tc.exit, i.exit, "%s%s", &i.out, &i.err)
			i.checkGolden(t, tc.name, dir, strings.Fields(tc.args))
			if strings.HasSuffix(tc.name, "-json") {
				require.True(t, json.Valid(i.out.Bytes()))
				require.Empty(t, i.err.String())
			} else if strings.HasPrefix(tc.name, "error-") {
				require.Regexp(t, `^gpuctl: .+\n  .+\.\n$`, i.err.String(), "what is wrong, and what to do")
			}
		})
	}

	c, err := os.ReadFile(filepath.Join(dir, "c.npy"))
	require.NoError(t, err)
	require.Equal(t, npyFile(npy.F32, []uint64{5}, floats(1.5, 2.25, 3, 0, float32(math.Inf(1)))), c)
	y, err := os.ReadFile(filepath.Join(dir, "y.bin"))
	require.NoError(t, err)
	require.Equal(t, floats(2.5, 4.25, 6, 4, float32(math.Inf(1))), y)
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left, "partial files are left")
}

func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o666))
	for _, tc := range []struct{ name, socket string }{
		{"unreachable-missing", filepath.Join(dir, "nosuch.sock")},
		{"unreachable-file", filepath.Join(dir, "file")},
	} {
		i := gpuctl(context.Background(), nil, false, "--socket", tc.socket, "devices")
		require.Equal(t, exitUnreachable, i.exit)
		i.checkGolden(t, tc.name, dir, []string{"--socket", tc.socket, "devices"})
	}

	i := gpuctl(context.Background(), map[string]string{"XDG_RUNTIME_DIR": dir}, false, "devices")
	require.Contains(t, i.err.String(), "/run/capgpu/default.sock", "no socket in the runtime folder")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "capgpu"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "capgpu/default.sock"), nil, 0o666))
	i = gpuctl(context.Background(), map[string]string{"XDG_RUNTIME_DIR": dir}, false, "devices")
	require.Contains(t, i.err.String(), filepath.Join(dir, "capgpu/default.sock"))

	// Without a runtime folder, use one in the temporary folder, if no other user
	// can have made it or can enter it.
	own := filepath.Join(dir, fmt.Sprintf("capgpu-%d", os.Getuid()))
	for _, tc := range []struct {
		mode os.FileMode
		want string
	}{{0o700, filepath.Join(own, "default.sock")}, {0o755, "/run/capgpu/default.sock"}} {
		require.NoError(t, os.RemoveAll(own))
		require.NoError(t, os.Mkdir(own, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(own, "default.sock"), nil, 0o666))
		require.NoError(t, os.Chmod(own, tc.mode))
		i = gpuctl(context.Background(), map[string]string{"TMPDIR": dir}, false, "devices")
		require.Contains(t, i.err.String(), tc.want)
	}

	// A path that no socket can have.
	long := filepath.Join(dir, strings.Repeat("x", 108))
	i = gpuctl(context.Background(), nil, false, "--socket", long, "devices")
	require.Equal(t, exitUsage, i.exit)
	require.Equal(t, fmt.Sprintf("gpuctl: the path of the socket has %d bytes, and a socket's has at most 107: %s\n  Change to its folder and name it with a relative path, or through a short symbolic link.\n", len(long), long), i.err.String())

	// A socket that a dead service left behind.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	stale := filepath.Join(dir, "stale.sock")
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: stale}))
	require.NoError(t, unix.Close(fd))
	i = gpuctl(context.Background(), nil, false, "--socket", stale, "devices")
	require.Equal(t, exitUnreachable, i.exit)
	i.checkGolden(t, "unreachable-stale", dir, []string{"--socket", stale, "devices"})

	// One of the other kind.
	l, err := net.Listen("unix", filepath.Join(dir, "test.capnp.sock"))
	require.NoError(t, err)
	defer l.Close()

	i = gpuctl(context.Background(), nil, false, "--socket", l.Addr().String(), "devices")
	require.Equal(t, exitUnreachable, i.exit)
	i.checkGolden(t, "unreachable-capnp", dir, []string{"--socket", l.Addr().String(), "devices"})
}

func TestMemoryTenant(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Attach: func(a *gpu.Attach) { a.Facet = gpu.FacetMemory }})
	for _, args := range [][]string{{"programs"}, {"run", "vecadd_f32", "--random", "5"}} {
		i := gpuctl(context.Background(), map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, args...)
		i.checkGolden(t, "memory-tenant-"+args[min(1, len(args)-1)], "", args)
	}
}

func TestRandomIsTheSameEverywhere(t *testing.T) {
	in := &input{dtype: npy.F32}
	b := make([]byte, 16)
	require.NoError(t, in.generator(1, 0)(b))
	require.Equal(t, []number{"0.59826094", "0.089111745", "0.7153564", "0.023676455"}, preview(npy.F32, b))
	in.dtype = npy.U32
	require.NoError(t, in.generator(2, 1)(b))
	require.Len(t, preview(npy.I32, b), 4)
	for _, name := range npy.Names() {
		in.dtype, _ = npy.ParseDType(name)
		require.NoError(t, in.generator(3, 0)(b))
		for _, n := range preview(in.dtype, b) {
			v, err := strconv.ParseFloat(string(n), 64)
			require.NoError(t, err)
			if strings.HasPrefix(name, "f") {
				require.True(t, v >= 0 && v < 1, "%s %v", name, v)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 1<<20 - 1: "1.0 MiB", 268435456: "256.0 MiB", math.MaxUint64: "16.0 EiB"} {
		require.Equal(t, want, bytesText(n))
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 67108864: "67,108,864"} {
		require.Equal(t, want, countText(n))
	}
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1500: "1.50 µs", 212 * time.Millisecond: "212 ms", 1530 * time.Millisecond: "1.53 s", 12345 * time.Millisecond: "12.3 s", 90 * time.Second: "1m30s",
	} {
		require.Equal(t, want, durationText(d))
	}
	require.Equal(t, "unlimited", amount("buffers", math.MaxUint64))
	require.Equal(t, "4.0 KiB", amount("deviceMemory", 4096))
	require.Equal(t, "4.10 µs", amount("deviceTime", 4096))
	require.Equal(t, "4,096", amount("buffers", 4096))
}
