package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/gpuerr"
	"capgpu/program"
)

// dataArgs are the data arguments of a program, shared by "run" and "check".
type dataArgs struct {
	In       []string `help:"Input for the next binding that the program reads, or NAME=FILE for the binding NAME (write ./ before a file whose name has a =). A .npy file or raw little-endian values; or zeros:SHAPE, range:SHAPE (0, 1, 2, …) or random:SHAPE. A binding that is only written begins with what NAME=FILE gives. Repeat for more." placeholder:"FILE" sep:"none" short:"i"`
	Out      []string `help:"Where to save the next binding that the program writes, or NAME=FILE. A name ending in .npy gets a header, any other raw values. Repeat for more." placeholder:"FILE" sep:"none" short:"o"`
	Random   string   `help:"Generate N random elements for every input that has no file: floats from 0 up to 1, integers of the full range." placeholder:"N"`
	Seed     uint64   `help:"Seed of --random and random:SHAPE. The same seed gives the same input everywhere." default:"1"`
	Type     string   `help:"Element type of generated input and of outputs: f32, u32, i32, f16, u16, i16, u8, i8, f64, u64 or i64. Default: what the program says, else the file, else bytes." placeholder:"TYPE"`
	OutShape []string `help:"Shape of every output that has no input, or NAME=SHAPE for the binding NAME. Default: that of the inputs; needed when these differ in size, or there are none. Repeat for more." placeholder:"N|NxM" sep:"none"`
	Inline   []string `help:"Constant argument: NAME=VALUE, or the next one: VALUE or TYPE:VALUE, for instance 2.5, u32:7 or n=0xff. Repeat for more." placeholder:"VALUE" sep:"none"`
	Grid     string   `help:"Workgroups. Default: as many as the bindings need." placeholder:"X[,Y[,Z]]"`
	Block    string   `help:"Threads of a workgroup. Default: the program's." placeholder:"X[,Y[,Z]]"`
	Shared   uint32   `help:"Bytes of dynamic shared memory, for a program that takes some." placeholder:"BYTES"`
	Progress bool     `help:"Report progress on standard error even if it is no terminal."`
}

// info is everything that gpuctl needs to know about a program, from any source.
type info struct {
	Name        string
	Bindings    []program.Binding
	Inline      []program.Field
	InlineBytes uint32
}

func infoOfClient(p client.ProgramInfo) info {
	i := info{Name: p.Name, InlineBytes: p.InlineBytes}
	for _, b := range p.Bindings {
		i.Bindings = append(i.Bindings, program.Binding{Name: b.Name, Access: program.Access(b.Access), Type: program.Type(b.Type)})
	}
	for _, f := range p.Inline {
		i.Inline = append(i.Inline, program.Field{Name: f.Name, Type: program.Type(f.Type), Off: f.Off})
	}
	return i
}

func infoOfProgram(p *program.Info) info {
	return info{Name: p.Name, Bindings: p.Bindings, Inline: p.Inline, InlineBytes: p.InlineBytes}
}

// deviceLimits are checked before any memory is filled, so that the error can still
// name the argument that exceeds them.
type deviceLimits struct {
	name                                string
	maxGridDim, maxBlockDim, maxThreads uint32
	maxBufferBytes                      uint64
}

// work is one use of a program: the user's arguments, resolved against the
// program's interface.
type work struct {
	app      *app
	args     dataArgs
	progress *progress

	grid, block program.Dim3
	random      uint64 // elements of --random, 0 without
	limits      deviceLimits
	info        info
	inline      []byte
	types       []npy.DType // of the elements of each binding
	inputs      []*input    // of each binding; nil for one that is only written
	outShape    []uint64    // of outputs without an input
	outShapes   [][]uint64  // of each binding; nil: outShape
	files       []string    // output file of each binding, "" for none
	memory      [][]byte    // of each binding
}

// newWork reads the arguments, as far as they are meaningful without a program.
func newWork(a *app, args dataArgs) (work, error) {
	w := work{app: a, args: args}
	var err error
	if w.grid, err = parseDim("--grid", args.Grid); err != nil {
		return w, err
	}
	if w.block, err = parseDim("--block", args.Block); err != nil {
		return w, err
	}
	if err = w.commonShape(); err != nil {
		return w, err
	}
	if w.random, err = parseRandom(args.Random); err != nil {
		return w, err
	}
	if _, known := npy.ParseDType(args.Type); args.Type != "" && !known {
		return w, usagef("--type %s: the types are %s", args.Type, listText(npy.Names()))
	}

	w.progress = &progress{w: a.err, on: args.Progress || a.errIsTerm, term: a.errIsTerm, now: a.now}
	return w, nil
}

// resolve matches the arguments with the program.
func (w *work) resolve(i info) error {
	w.info = i
	var err error
	if w.inline, err = inlineArgs(i, w.args.Inline); err != nil {
		return err
	}

	if err := w.namedShapes(); err != nil {
		return err
	}
	ins, err := assign(i, program.Read, w.args.In, "--in")
	if err != nil {
		return err
	}
	if w.files, err = assign(i, program.Write, w.args.Out, "--out"); err != nil {
		return err
	}
	if err := w.openInputs(ins); err != nil {
		return err
	}
	if err := w.checkLaunch(); err != nil {
		return err
	}
	if err := w.sizeOutputs(); err != nil {
		return err
	}

	return w.checkSizes()
}

// checkLaunch checks, before any memory is filled, that the device can have this
// launch and that its results can be saved.
func (w *work) checkLaunch() error {
	grid, block, lim := w.grid, w.block, &w.limits
	switch threads := block.Count(); {
	case max(grid.X, grid.Y, grid.Z) > lim.maxGridDim:
		return gpuerr.New(gpuerr.LaunchLimit, "--grid %s: the device takes up to %s workgroups in each dimension", w.args.Grid, countText(uint64(lim.maxGridDim)))
	case max(block.X, block.Y, block.Z) > lim.maxBlockDim:
		return gpuerr.New(gpuerr.LaunchLimit, "--block %s: the device takes up to %s threads in each dimension", w.args.Block, countText(uint64(lim.maxBlockDim)))
	case threads > uint64(lim.maxThreads):
		return gpuerr.New(gpuerr.LaunchLimit, "--block %s: these are %s threads, the device takes up to %s", w.args.Block, countText(threads), countText(uint64(lim.maxThreads)))
	}

	for _, path := range w.files {
		if path == "" {
			continue
		}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return &fs.PathError{Op: "write", Path: path, Err: unix.EISDIR}
		}
		if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}

	return nil
}

// sizeOutputs decides the shape of bindings that the program only writes. If inputs
// differ in size, they do not decide it: using one of them would make up elements
// or lose some.
func (w *work) sizeOutputs() error {
	free := false // a binding that nothing else tells the size of
	for i, b := range w.info.Bindings {
		free = free || b.Access&program.Write != 0 && w.inputs[i] == nil && w.outShapes[i] == nil
	}
	if w.outShape != nil || !free {
		return nil
	}

	var first *input
	for _, in := range w.inputs {
		switch {
		case in == nil:
		case first == nil:
			first, w.outShape = in, in.shape
		case elements(in.shape) != elements(first.shape):
			return usagef("%s has %s, %s has %s: give %s inputs of one size, or tell with --out-shape how much it writes",
				first.source(), elementsText(first.shape), in.source(), countText(elements(in.shape)), w.info.Name)
		}
	}

	if first == nil {
		return usagef("%s reads nothing, so nothing tells how much it writes: use --out-shape N", w.info.Name)
	}

	return nil
}

// shapeOf is the shape of a binding: its input's, its own, or that of all outputs.
func (w *work) shapeOf(i int) []uint64 {
	switch {
	case w.inputs[i] != nil:
		return w.inputs[i].shape
	case w.outShapes[i] != nil:
		return w.outShapes[i]
	}
	return w.outShape
}

// checkSizes refuses buffers that no session of the device could have.
func (w *work) checkSizes() error {
	for i, b := range w.info.Bindings {
		n, flag := elements(w.shapeOf(i)), "--out-shape "+strings.Join(w.args.OutShape, " ")
		if in := w.inputs[i]; in != nil {
			n, flag = elements(in.shape), "--in "+in.path
			if in.path == "" {
				flag = "--random " + w.args.Random
			}
		}
		if limit := w.limits.maxBufferBytes / w.types[i].Bytes(); n > limit {
			return usagef("%s: these are %s elements for %s; a buffer of %s has room for %s", flag, countText(n), b.Name, w.limits.name, countText(limit))
		}
	}
	return nil
}

// showElapsed displays the time of a stage without a measure, until the returned
// function is called.
func (w *work) showElapsed(stage string) (stop func()) {
	begun := w.app.now()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(redrawEach)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				w.progress.elapsed(stage, w.app.now().Sub(begun))
			case <-quit:
				return
			}
		}
	}()

	return func() { close(quit); <-ended }
}
