package load_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/llama2c"
	"capgpu/model/load"
	"capgpu/model/load/loadtest"
	"capgpu/model/mapped"
	"capgpu/model/quant"
	"capgpu/model/safetensors"
	"capgpu/model/synth"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func tiny(t testing.TB) *model.File {
	t.Helper()
	o, err := synth.Shape("tiny")
	require.NoError(t, err)
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

func writeFile(t testing.TB, path string, put func(w io.Writer) error) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, put(&b))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
}

// A file is recognised by its content, a folder by being one, and a file of a
// folder by its name.
func TestSniff(t *testing.T) {
	dir, f := t.TempDir(), tiny(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("no-ending"), func(w io.Writer) error { return gguf.Write(w, f, nil) })
	writeFile(t, at("c.gguf"), func(w io.Writer) error { return llama2c.Write(w, f, 1, nil) })
	writeFile(t, at("tok512.bin"), func(w io.Writer) error { return llama2c.WriteTokenizer(w, f.Tokenizer.Spec()) })
	require.NoError(t, os.Mkdir(at("hf"), 0o700))
	create := func(name string, put func(w io.Writer) error) error {
		writeFile(t, filepath.Join(dir, "hf", name), put)
		return nil
	}

	require.NoError(t, safetensors.Write(create, f, safetensors.Options{}, nil))
	require.NoError(t, os.WriteFile(at("hf/chat_template.jinja"), []byte("{{ x }}"), 0o600))

	for path, want := range map[string][2]string{
		"no-ending": {"gguf", "synth-tiny"}, "c.gguf": {"llama2c", "c"},
		"hf": {"safetensors", "hf"}, "hf/": {"safetensors", "hf"}, "hf/model.safetensors": {"safetensors", "hf"}, "hf/config.json": {"safetensors", "hf"},
	} {
		got, err := load.Open(at(path))
		require.NoError(t, err, path)
		require.NoError(t, loadtest.Check(got))
		require.Equal(t, want, [2]string{got.Format, got.Name}, path)
		if got.Format == "safetensors" {
			require.Equal(t, "{{ x }}", got.Template)
		}
		require.NoError(t, got.Close())
		require.NoError(t, got.Close())
	}
}

// A checkpoint's tokenizer is the named one, or the first beside it.
func TestTokenizerBeside(t *testing.T) {
	dir, f := t.TempDir(), tiny(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("m.bin"), func(w io.Writer) error { return llama2c.Write(w, f, 0, nil) })
	tokenizer := func(w io.Writer) error { return llama2c.WriteTokenizer(w, f.Tokenizer.Spec()) }

	_, err := load.Open(at("m.bin"))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "tok512.bin")
	for _, name := range []string{"tokenizer.bin", "tok512.bin", "m.tokenizer.bin"} {
		writeFile(t, at(name), tokenizer)
		got, err := load.Open(at("m.bin"))
		require.NoError(t, err, name)
		require.NoError(t, got.Close())
		// The next is tried first, so this one is not read any more.
		require.NoError(t, os.WriteFile(at(name), []byte("no tokenizer"), 0o600))
		_, err = load.Open(at("m.bin"))
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, name+": ")
	}

	writeFile(t, at("other"), tokenizer)
	got, err := load.OpenWith(at("m.bin"), load.Options{Tokenizer: at("other")})
	require.NoError(t, err)
	require.NoError(t, got.Close())
	_, err = load.OpenWith(at("m.bin"), load.Options{Tokenizer: at("none")})
	require.ErrorIs(t, err, gpuerr.IO)
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, unix.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(at("text"), []byte("This is a text and no model of any kind."), 0o600))
	require.NoError(t, os.Mkdir(at("folder"), 0o700))
	for path, code := range map[string]gpuerr.Code{
		"none": gpuerr.IO, "pipe": gpuerr.Invalid, "empty": gpuerr.Invalid, "text": gpuerr.Invalid,
		"folder": gpuerr.Invalid, "none/model.safetensors": gpuerr.Invalid,
	} {
		_, err := load.Open(at(path))
		require.ErrorIs(t, err, code, path)
		require.Equal(t, code, gpuerr.CodeOf(err), path)
	}

	_, err := load.Open(at("text"))
	require.EqualError(t, err, "text: E_INVALID: is not a model: neither GGUF, nor llama2.c's, nor a folder of safetensors (as llama2.c's: dim: 1936287828 is not within 1 to 65536)")
	// A truncated checkpoint is still a checkpoint.
	var whole bytes.Buffer
	require.NoError(t, llama2c.Write(&whole, tiny(t), 0, nil))
	require.NoError(t, os.WriteFile(at("cut.bin"), whole.Bytes()[:100000], 0o600))
	_, err = load.Open(at("cut.bin"))
	require.EqualError(t, err, "cut.bin: llama2.c: E_INVALID: token_embedding_table: ends at byte 131100 of a file of 100000")
	create := func(name string, put func(w io.Writer) error) error {
		writeFile(t, filepath.Join(dir, "folder", name), put)
		return nil
	}

	require.NoError(t, safetensors.Write(create, tiny(t), safetensors.Options{ShardBytes: 100000}, nil))
	require.NoError(t, os.Remove(at("folder/model-00002-of-00006.safetensors")))
	_, err = load.Open(at("folder"))
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "model-00002-of-00006.safetensors")
}

// A file that becomes shorter is an error for its reader: while loading and while
// copying.
func TestTruncatedUnderUs(t *testing.T) {
	path, f := filepath.Join(t.TempDir(), "m"), tiny(t)
	put := func(w io.Writer) error { return gguf.Write(w, f, nil) }
	writeFile(t, path, put)
	got, err := load.Open(path)
	require.NoError(t, err)
	defer got.Close()

	mem := make([]byte, len(got.Weights.Output.Data))
	require.NoError(t, mapped.Copy(mem, got.Weights.Output.Data))
	require.Equal(t, f.Weights.Output.Data, mem)

	m, err := mapped.Open(path)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, os.Truncate(path, int64(os.Getpagesize())))
	require.ErrorIs(t, mapped.Copy(mem, got.Weights.Output.Data), gpuerr.IO)
	_, err = quant.Convert(got, model.Q8_0, 0)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorIs(t, gguf.Write(io.Discard, got, nil), gpuerr.IO)
	require.ErrorIs(t, mapped.Guard(func() error { _, err := gguf.Load(m.Bytes()); return err }), gpuerr.IO)
}

// A file that changes while it is loaded gives a model, or an error, and nothing
// worse.
func TestChangedUnderUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	writeFile(t, path, func(w io.Writer) error { return gguf.Write(w, tiny(t), nil) })
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()

	const front = 14000
	good := make([]byte, front)
	_, err = file.ReadAt(good, 0)
	require.NoError(t, err)

	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-stop:
				return
			default:
			}
			at := 24 + r.IntN(front-24)
			file.WriteAt([]byte{byte(r.Uint32())}, int64(at))
			file.WriteAt(good[at:at+1], int64(at))
		}
	})

	loaded := 0
	for range 100 {
		got, err := load.Open(path)
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Invalid)
			continue
		}
		loaded++
		require.NoError(t, loadtest.Check(got))
		require.NoError(t, got.Close())
	}

	close(stop)
	changing.Wait()
	t.Logf("%d of 100 loaded", loaded)
}

// A model in several files is opened by the name of any of them.
func TestSplitFiles(t *testing.T) {
	dir, f := t.TempDir(), tiny(t)
	var buffers [3]bytes.Buffer
	require.NoError(t, gguf.WriteSplit([]io.Writer{&buffers[0], &buffers[1], &buffers[2]}, f, nil))
	names := []string{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}
	for i, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), buffers[i].Bytes(), 0o600))
	}

	for _, name := range names {
		got, err := load.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, f.Weights, got.Weights)
		require.NoError(t, got.Close())
	}

	require.NoError(t, os.Rename(filepath.Join(dir, names[1]), filepath.Join(dir, "other.gguf")))
	_, err := load.Open(filepath.Join(dir, "other.gguf"))
	require.ErrorContains(t, err, "split.count: is file 2 of 3, and its name does not end in -00002-of-00003.gguf")
	_, err = load.Open(filepath.Join(dir, names[0]))
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, names[1])
}
