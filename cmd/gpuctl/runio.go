package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/program"
)

// chunkBytes is the number of bytes read, generated or written between two checks
// of Ctrl-C and the progress display.
const chunkBytes = 4 << 20

// input is the source of one binding that the program reads.
type input struct {
	name  string   // of the binding
	path  string   // as --in names it; "" for --random
	file  *os.File // positioned at the first element; nil for generated input
	made  string   // generated input: one of kinds
	shape []uint64
	dtype npy.DType // of its elements
	typed bool      // the file specified dtype
}

// source names the input as the command line does.
func (in *input) source() string {
	if in.path == "" {
		return fmt.Sprintf("%s (--random)", in.name)
	}
	return fmt.Sprintf("%s (%s)", in.name, in.path)
}

func (in *input) bytes() uint64 { return elements(in.shape) * in.dtype.Bytes() }

// openInputs opens the files and reads their headers. The device is not used before
// all inputs are known to be good.
func (w *work) openInputs(files []string) error {
	w.inputs = make([]*input, len(w.info.Bindings))
	var missing []string
	for i, b := range w.info.Bindings {
		switch {
		case files[i] != "":
			in, err := w.openInput(b.Name, files[i])
			if err != nil {
				return err
			}
			w.inputs[i] = in
		case b.Access&program.Read == 0:
		case w.random > 0:
			w.inputs[i] = &input{name: b.Name, made: "random", shape: []uint64{w.random}}
		default:
			missing = append(missing, b.Name)
		}
	}

	if len(missing) > 0 {
		return usagef("%s reads %s, for which there is no input: use --in FILE or --random N", w.info.Name, listText(missing))
	}

	w.chooseTypes()
	for i, in := range w.inputs {
		if in == nil || in.file == nil {
			if in != nil {
				in.dtype = w.types[i]
			}
			continue
		}
		if err := in.measure(w.types[i]); err != nil {
			return err
		}
	}

	return nil
}

// chooseTypes decides the type of each binding's elements: the user's choice, else
// the program's, else its file's. Without any of them it is bytes.
func (w *work) chooseTypes() {
	w.types = make([]npy.DType, len(w.info.Bindings))
	for i, b := range w.info.Bindings {
		w.types[i] = npy.U8
		if in := w.inputs[i]; in != nil && in.typed {
			w.types[i] = in.dtype
		}
		if t, ok := npy.ParseDType(string(b.Type)); ok {
			w.types[i] = t
		}
		if t, ok := npy.ParseDType(w.args.Type); ok {
			w.types[i] = t
		}
	}
}

func (w *work) openInput(name, path string) (*input, error) {
	if in, err := madeInput(name, path); in != nil || err != nil {
		return in, err
	}

	// Do not wait for a writer, in case it is a pipe.
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

// readHeader determines the file's contents, and checks that it is complete.
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
		if _, err := in.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		in.shape = []uint64{size} // until measure knows the type
	}

	if elements(in.shape) == 0 {
		return usagef("%s holds no values: name a file with at least one, or use --random N", in.path)
	}

	return nil
}

// measure sets the type of the file's contents, and computes their number.
func (in *input) measure(t npy.DType) error {
	if in.typed {
		if in.dtype.Bytes() != t.Bytes() {
			return &hinted{usagef("%s holds %s values, %s takes %s", in.path, in.dtype, in.name, t), "Convert it, for instance with NumPy's .astype."}
		}
		return nil
	}
	in.dtype = t
	size := in.shape[0]
	if size%t.Bytes() != 0 {
		return usagef("%s: %d bytes are not a whole number of %s values; save it as that, or name another --type", in.path, size, t)
	}
	in.shape = []uint64{size / t.Bytes()}
	return nil
}

func (w *work) closeInputs() {
	for _, in := range w.inputs {
		if in != nil && in.file != nil {
			in.file.Close()
		}
	}
}

// load fills the inputs in place, in memory that allocate makes for each binding.
func (w *work) load(ctx context.Context, allocate func(binding int, bytes uint64) ([]byte, error)) error {
	var done, total uint64
	for _, in := range w.inputs {
		if in != nil {
			total += in.bytes()
		}
	}

	for i := range w.info.Bindings {
		in, bytes := w.inputs[i], elements(w.shapeOf(i))*w.types[i].Bytes()

		mem, err := allocate(i, bytes)
		if err != nil {
			return err
		}

		w.memory = append(w.memory, mem)
		if in == nil {
			continue
		}

		fill, stage := in.fromFile, "loading "+in.path
		if in.file == nil {
			fill, stage = in.generator(w.args.Seed, uint64(i)), "generating "+in.name
		} else if in.typed && in.dtype != w.types[i] && !w.app.json {
			w.progress.clear()
			fmt.Fprintf(w.app.err, "gpuctl: note: %s holds %s values; they are passed on as they are\n", in.path, in.dtype)
		}

		for at := uint64(0); at < bytes; at += chunkBytes {
			if ctx.Err() != nil {
				return errInterrupted
			}
			chunk := mem[at:min(at+chunkBytes, bytes)]
			if err := fill(chunk); err != nil {
				return err
			}
			done += uint64(len(chunk))
			w.progress.bytes(stage, done, total)
		}
	}

	return nil
}

func (in *input) fromFile(chunk []byte) error {
	if _, err := io.ReadFull(in.file, chunk); err != nil {
		return &hinted{fmt.Errorf("cannot read %s to its end, as if it changed meanwhile: %w", in.path, err), "Run the command again when nothing writes the file."}
	}
	return nil
}

// save writes the outputs that have a file and previews all of them. kept reports
// an error if the values that were read may not be the results.
func (w *work) save(ctx context.Context, r *result, kept func() error) error {
	var done, total uint64
	for i, path := range w.files {
		if path != "" {
			total += uint64(len(w.memory[i]))
		}
	}

	for i, b := range w.info.Bindings {
		if b.Access&program.Write == 0 {
			continue
		}

		shape := w.shapeOf(i)
		r.addOutput(b.Name, w.files[i], w.types[i], shape, preview(w.types[i], w.memory[i]))
		if w.files[i] == "" {
			continue
		}

		err := saveFile(w.files[i], npy.Header{DType: w.types[i], Shape: shape}, w.memory[i], func(n int) error {
			done += uint64(n)
			w.progress.bytes("saving "+w.files[i], done, total)
			if ctx.Err() != nil {
				return errInterrupted
			}
			return kept()
		})
		if err != nil {
			return err
		}
	}

	return kept()
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
