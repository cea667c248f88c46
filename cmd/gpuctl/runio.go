package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
)

// chunkBytes is how much is read, generated or written between two looks at
// Ctrl-C and the progress display.
const chunkBytes = 4 << 20

// input is what fills one binding that the program reads.
type input struct {
	name  string   // of the binding
	path  string   // "" for generated input
	file  *os.File // stands at the first element
	shape []uint64
	dtype npy.DType
	typed bool // the file told dtype
}

// source names the input as the command line does.
func (in *input) source() string {
	if in.path == "" {
		return fmt.Sprintf("%s (--random)", in.name)
	}
	return fmt.Sprintf("%s (%s)", in.name, in.path)
}

func (in *input) bytes() uint64 { return elements(in.shape) * npy.ElementBytes }

// openInputs opens the files and reads their headers. Nothing is asked of the
// device before all inputs are known to be good.
func (j *job) openInputs(files []string) error {
	j.inputs = make([]*input, len(j.info.Bindings))
	var missing []string
	for i, b := range j.info.Bindings {
		switch {
		case b.Access&client.Read == 0:
		case files[i] != "":
			in, err := openInput(b.Name, files[i])
			if err != nil {
				return err
			}
			j.inputs[i] = in
		case j.random > 0:
			j.inputs[i] = &input{name: b.Name, shape: []uint64{j.random}}
		default:
			missing = append(missing, b.Name)
		}
	}
	if len(missing) > 0 {
		return usagef("%s reads %s, for which there is no input: use --in FILE or --random N", j.info.Name, listText(missing))
	}
	return nil
}

func openInput(name, path string) (*input, error) {
	// Without waiting for a writer, should it be a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = &hinted{usagef("%s", pathText(pathErr)), pathHint(pathErr)}
		}
		return nil, err
	}
	in := &input{name: name, path: path, file: f}
	if err := in.readHeader(); err != nil {
		f.Close()
		return nil, err
	}
	return in, nil
}

// readHeader finds out what the file holds and that it is complete.
func (in *input) readHeader() error {
	st, err := in.file.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return usagef("%s is not a regular file: save the values in one, and name that", in.path)
	}
	size := uint64(st.Size())
	h, err := npy.ReadHeader(in.file)
	switch {
	case err == nil:
		at, err := in.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		in.shape, in.dtype, in.typed = h.Shape, h.DType, true
		if have := size - uint64(at); have != in.bytes() {
			return usagef("%s is damaged: its header promises %d bytes of values, the file has %d; make it again", in.path, in.bytes(), have)
		}
	case err == npy.ErrNotNpy && filepath.Ext(in.path) == ".npy":
		return &hinted{usagef("%s: %v", in.path, err), "Save it with numpy.save, or give raw values a name with another ending."}
	case err != npy.ErrNotNpy:
		return usagef("%s: %v", in.path, err)
	default:
		if size%npy.ElementBytes != 0 {
			return usagef("%s: %d bytes are not a whole number of 32-bit values; save it as f32, u32 or i32", in.path, size)
		}
		if _, err := in.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		in.shape = []uint64{size / npy.ElementBytes}
	}
	if elements(in.shape) == 0 {
		return usagef("%s holds no values: name a file with at least one, or use --random N", in.path)
	}
	return nil
}

func (j *job) closeInputs() {
	for _, in := range j.inputs {
		if in != nil && in.file != nil {
			in.file.Close()
		}
	}
}

// load creates and maps a buffer for each binding and fills the inputs in place.
func (j *job) load(ctx context.Context, s *client.Session) error {
	var done, total uint64
	for _, in := range j.inputs {
		if in != nil {
			total += in.bytes()
		}
	}
	for i, b := range j.info.Bindings {
		in, bytes := j.inputs[i], elements(j.outShape)*npy.ElementBytes
		usage := client.Storage
		if in != nil {
			bytes, usage = in.bytes(), usage|client.Upload
		}
		if b.Access&client.Write != 0 {
			usage |= client.Readback
		}
		buf, err := s.CreateBuffer(ctx, bytes, usage)
		if err != nil {
			return err
		}
		mem, err := buf.Map()
		if err != nil {
			return err
		}
		j.buffers, j.memory = append(j.buffers, buf), append(j.memory, mem[:bytes])
		j.launch.Bindings = append(j.launch.Bindings, client.Binding{Buffer: buf, Len: bytes})
		if in == nil {
			continue
		}
		fill, stage := in.fromFile, "loading "+in.path
		if in.file == nil {
			fill, stage = in.generator(j.dtype, j.cmd.Seed, uint64(i)), "generating "+in.name
		} else if in.typed && in.dtype != j.dtype {
			j.progress.clear()
			fmt.Fprintf(j.app.err, "gpuctl: note: %s holds %s values; they are passed on as they are\n", in.path, in.dtype)
		}
		for at := uint64(0); at < bytes; at += chunkBytes {
			if ctx.Err() != nil {
				return errInterrupted
			}
			chunk := j.memory[i][at:min(at+chunkBytes, bytes)]
			if err := fill(chunk); err != nil {
				return err
			}
			done += uint64(len(chunk))
			j.progress.bytes(stage, done, total)
		}
	}
	return nil
}

func (j *job) unmap() {
	for _, b := range j.buffers {
		_ = b.Unmap() // the session's close is next and reports what matters
	}
}

func (in *input) fromFile(chunk []byte) error {
	if _, err := io.ReadFull(in.file, chunk); err != nil {
		return &hinted{fmt.Errorf("cannot read %s to its end, as if it changed meanwhile: %w", in.path, err), "Run the command again when nothing writes the file."}
	}
	return nil
}

// generator makes the values of --random. PCG is fixed by math/rand/v2, so a
// seed means the same values on every machine.
func (in *input) generator(t npy.DType, seed, stream uint64) func([]byte) error {
	pcg := rand.NewPCG(seed, stream)
	return func(chunk []byte) error {
		for i := 0; i+npy.ElementBytes <= len(chunk); i += npy.ElementBytes {
			v := uint32(pcg.Uint64() >> 32)
			if t == npy.F32 {
				v = math.Float32bits(float32(v>>8) / (1 << 24))
			}
			binary.LittleEndian.PutUint32(chunk[i:], v)
		}
		return nil
	}
}

// save writes the outputs that have a file and previews all of them.
func (j *job) save(ctx context.Context, r *result) error {
	var done, total uint64
	for i, path := range j.files {
		if path != "" {
			total += uint64(len(j.memory[i]))
		}
	}
	for i, b := range j.info.Bindings {
		if b.Access&client.Write == 0 {
			continue
		}
		shape := j.outShape
		if in := j.inputs[i]; in != nil {
			shape = in.shape
		}
		r.addOutput(b.Name, j.files[i], shape, preview(j.dtype, j.memory[i]))
		if j.files[i] == "" {
			continue
		}
		err := saveFile(j.files[i], npy.Header{DType: j.dtype, Shape: shape}, j.memory[i], func(n int) error {
			done += uint64(n)
			j.progress.bytes("saving "+j.files[i], done, total)
			if ctx.Err() != nil {
				return errInterrupted
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// saveFile writes values straight from mapped memory. The file appears under its
// name only when it is complete; a device or pipe is written in place.
func saveFile(path string, h npy.Header, values []byte, wrote func(n int) error) error {
	target, flags := path, os.O_WRONLY
	st, err := os.Stat(path)
	whole := err != nil || st.Mode().IsRegular()
	if whole {
		target = filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.part", filepath.Base(path), os.Getpid()))
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(target, flags, 0o666)
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: errors.Unwrap(err)}
	}
	err = writeValues(f, h, values, filepath.Ext(path) == ".npy", wrote)
	if e := f.Close(); err == nil {
		err = e
	}
	if whole {
		if err == nil {
			err = os.Rename(target, path)
		}
		if err != nil {
			os.Remove(target)
		}
	}
	// The user knows the file under its own name.
	var errno unix.Errno
	if errors.As(err, &errno) {
		return &fs.PathError{Op: "write", Path: path, Err: errno}
	}
	return err
}

func writeValues(f *os.File, h npy.Header, values []byte, header bool, wrote func(n int) error) error {
	if header {
		if _, err := f.Write(npy.AppendHeader(nil, h)); err != nil {
			return err
		}
	}
	for len(values) > 0 {
		chunk := values[:min(chunkBytes, len(values))]
		if _, err := f.Write(chunk); err != nil {
			return err
		}
		if err := wrote(len(chunk)); err != nil {
			return err
		}
		values = values[len(chunk):]
	}
	return nil
}
