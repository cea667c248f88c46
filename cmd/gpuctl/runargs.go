package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/gpuerr"
)

// parseDim reads "X", "X,Y" or "X,Y,Z"; missing dimensions are 1, "" is zero.
func parseDim(flag, s string) (client.Dim3, error) {
	if s == "" {
		return client.Dim3{}, nil
	}
	n := [3]uint32{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return client.Dim3{}, usagef("%s %s: at most three dimensions, X,Y,Z", flag, s)
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil || v == 0 {
			return client.Dim3{}, usagef("%s %s: %q is not a whole number from 1 up", flag, s, p)
		}
		n[i] = uint32(v)
	}
	return client.Dim3{X: n[0], Y: n[1], Z: n[2]}, nil
}

// parseShape reads "N" or "NxM".
func parseShape(s string) ([]uint64, error) {
	if s == "" {
		return nil, nil
	}
	var shape []uint64
	for _, p := range strings.Split(s, "x") {
		v, err := strconv.ParseUint(p, 10, 40)
		if err != nil || v == 0 {
			return nil, usagef("--out-shape %s: write N or NxM, with whole numbers from 1 up", s)
		}
		shape = append(shape, v)
	}
	if len(shape) > 2 || elements(shape) > math.MaxInt64/npy.ElementBytes {
		return nil, usagef("--out-shape %s: at most two dimensions, and fewer elements", s)
	}
	return shape, nil
}

// parseRandom reads how many elements --random generates; 0 is without.
func parseRandom(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > math.MaxInt64/npy.ElementBytes:
		return 0, usagef("--random %s is more than any device holds", s)
	case err != nil || n == 0:
		return 0, usagef("--random %s: write how many elements to generate, a whole number from 1 up", s)
	}
	return n, nil
}

func elements(shape []uint64) uint64 {
	n := uint64(1)
	for _, d := range shape {
		if d != 0 && n > math.MaxUint64/d {
			return math.MaxUint64
		}
		n *= d
	}
	return n
}

// parseInline encodes constants like "f32:2.5", one after the other.
func parseInline(args []string) ([]byte, error) {
	var out []byte
	for _, arg := range args {
		kind, value, _ := strings.Cut(arg, ":")
		dtype, known := npy.ParseDType(kind)
		if !known {
			return nil, usagef("--inline %s: write TYPE:VALUE with type f32, u32 or i32", arg)
		}
		var bits uint32
		var err error
		switch dtype {
		case npy.F32:
			var f float64
			f, err = strconv.ParseFloat(value, 32)
			bits = math.Float32bits(float32(f))
		case npy.U32:
			var u uint64
			u, err = strconv.ParseUint(value, 0, 32)
			bits = uint32(u)
		case npy.I32:
			var i int64
			i, err = strconv.ParseInt(value, 0, 32)
			bits = uint32(int32(i))
		}
		if err != nil {
			return nil, usagef("--inline %s: %q is no %s value", arg, value, kind)
		}
		out = binary.LittleEndian.AppendUint32(out, bits)
	}
	return out, nil
}

// chooseDevice finds a device by index or name; "" is the first that is ready.
func chooseDevice(ctx context.Context, conn *client.Conn, want string) (client.DeviceInfo, error) {
	devices, err := conn.Devices(ctx)
	if err != nil {
		return client.DeviceInfo{}, err
	}
	if len(devices) == 0 {
		return client.DeviceInfo{}, gpuerr.New(gpuerr.NoDevice, "tenant %s has no device", conn.Tenant())
	}
	if want == "" {
		for _, d := range devices {
			if d.State == client.Ready {
				return d, nil
			}
		}
		return devices[0], nil
	}
	for _, d := range devices {
		if want == d.Name || want == strconv.FormatUint(uint64(d.Index), 10) {
			return d, nil
		}
	}
	return client.DeviceInfo{}, gpuerr.New(gpuerr.NoDevice, "there is no device %q", want)
}

// resolve opens the program and matches files with bindings.
func (j *job) resolve(ctx context.Context, s *client.Session) error {
	d, err := s.Describe(ctx)
	if err != nil {
		return err
	}
	j.describe = d
	if d.Facet < client.FacetProgram {
		return gpuerr.New(gpuerr.Unimplemented, "this tenant may not run programs on %s, only move memory", j.device)
	}
	p, err := s.OpenProgram(ctx, j.cmd.Program)
	if errors.Is(err, gpuerr.NoProgram) && len(d.Programs) > 0 {
		return &hinted{err, "This device has: " + strings.Join(d.Programs, ", ") + "."}
	}
	if err != nil {
		return err
	}
	j.info, j.launch.Program = p.Info(), p
	if have, want := len(j.launch.Inline), int(j.info.InlineBytes); have != want {
		return usagef("%s takes %s, %d given: use --inline TYPE:VALUE once for each", j.info.Name, plural(want/4, "inline argument"), have/4)
	}
	ins, err := assign(j.info, client.Read, j.cmd.In, "--in")
	if err != nil {
		return err
	}
	if j.files, err = assign(j.info, client.Write, j.cmd.Out, "--out"); err != nil {
		return err
	}
	if err := j.openInputs(ins); err != nil {
		return err
	}
	j.dtype = j.elementType()
	if err := j.checkLaunch(); err != nil {
		return err
	}
	if err := j.sizeOutputs(); err != nil {
		return err
	}
	return j.checkSizes()
}

// checkLaunch finds out before any memory is filled that the device cannot have
// this launch, or that its results could not be saved.
func (j *job) checkLaunch() error {
	grid, block, d := j.launch.Grid, j.launch.Block, &j.describe
	switch threads := uint64(block.X) * uint64(block.Y) * uint64(block.Z); {
	case max(grid.X, grid.Y, grid.Z) > d.MaxGridDim:
		return gpuerr.New(gpuerr.LaunchLimit, "--grid %s: the device takes up to %s workgroups in each dimension", j.cmd.Grid, countText(uint64(d.MaxGridDim)))
	case max(block.X, block.Y, block.Z) > d.MaxBlockDim:
		return gpuerr.New(gpuerr.LaunchLimit, "--block %s: the device takes up to %s threads in each dimension", j.cmd.Block, countText(uint64(d.MaxBlockDim)))
	case threads > uint64(d.MaxThreadsPerBlock):
		return gpuerr.New(gpuerr.LaunchLimit, "--block %s: these are %s threads, the device takes up to %s", j.cmd.Block, countText(threads), countText(uint64(d.MaxThreadsPerBlock)))
	case j.launch.Deadline > d.MaxDeadline:
		return usagef("--deadline %v: at most %s is possible for this tenant", j.cmd.Deadline, durationText(d.MaxDeadline))
	}
	for _, path := range j.files {
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

// assign distributes FILE and NAME=FILE arguments over the bindings that have
// the given access: first those with a name, then the others in order. The result
// has one entry for each binding.
func assign(info client.ProgramInfo, access client.Access, args []string, flag string) ([]string, error) {
	files := make([]string, len(info.Bindings))
	var names []string
	for _, b := range info.Bindings {
		if b.Access&access != 0 {
			names = append(names, b.Name)
		}
	}
	verb := map[client.Access]string{client.Read: "reads", client.Write: "writes"}[access]
	has := fmt.Sprintf("%s %s %s", info.Name, verb, listText(names))
	var unnamed []string
	for _, arg := range args {
		name, file, named := strings.Cut(arg, "=")
		if !named || strings.Contains(name, "/") {
			unnamed = append(unnamed, arg)
			continue
		}
		i := slices.IndexFunc(info.Bindings, func(b client.BindingInfo) bool { return b.Name == name })
		switch {
		case i < 0:
			return nil, &hinted{usagef("%s %s: %s has no binding %s; it %s %s", flag, arg, info.Name, name, verb, listText(names)),
				fmt.Sprintf("If the file's name has a =, write it as %s ./%s.", flag, arg)}
		case info.Bindings[i].Access&access == 0:
			return nil, usagef("%s %s: %s, not %s", flag, arg, has, name)
		case file == "":
			return nil, usagef("%s %s names no file for %s: write %s=FILE", flag, arg, name, name)
		case files[i] != "":
			return nil, usagef("%s is given twice: %s %s=%s and %s %s", name, flag, name, files[i], flag, arg)
		}
		files[i] = file
	}
	for _, arg := range unnamed {
		i := 0
		for i < len(files) && (files[i] != "" || info.Bindings[i].Access&access == 0) {
			i++
		}
		switch {
		case arg == "":
			return nil, usagef("%s names no file", flag)
		case i == len(files):
			return nil, usagef("%s %s is one too many: %s", flag, arg, has)
		}
		files[i] = arg
	}
	return files, nil
}

// listText is "nothing", "a", "a and b" or "a, b and c".
func listText(names []string) string {
	switch n := len(names); n {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

// elementType is that of generated input and of outputs.
func (j *job) elementType() npy.DType {
	if t, ok := npy.ParseDType(j.cmd.Type); ok {
		return t
	}
	if i := strings.LastIndexByte(j.info.Name, '_'); i >= 0 {
		if t, ok := npy.ParseDType(j.info.Name[i+1:]); ok {
			return t
		}
	}
	for _, in := range j.inputs {
		if in != nil && in.typed {
			return in.dtype
		}
	}
	return npy.F32
}

// sizeOutputs settles the shape of what the program only writes. Inputs that
// differ in size do not tell it: taking one of them would make up elements or
// lose some.
func (j *job) sizeOutputs() error {
	if j.outShape != nil || !slices.ContainsFunc(j.info.Bindings, func(b client.BindingInfo) bool { return b.Access&client.Write != 0 }) {
		return nil
	}
	var first *input
	for _, in := range j.inputs {
		switch {
		case in == nil:
		case first == nil:
			first, j.outShape = in, in.shape
		case elements(in.shape) != elements(first.shape):
			return usagef("%s has %s, %s has %s: give %s inputs of one size, or tell with --out-shape how much it writes",
				first.source(), elementsText(first.shape), in.source(), countText(elements(in.shape)), j.info.Name)
		}
	}
	if first == nil {
		return usagef("%s reads nothing, so nothing tells how much it writes: use --out-shape N", j.info.Name)
	}
	return nil
}

func elementsText(shape []uint64) string {
	n := elements(shape)
	if n == 1 {
		return "1 element"
	}
	return countText(n) + " elements"
}

// checkSizes finds buffers that no session of the device could have, while what
// asks for them can still be named.
func (j *job) checkSizes() error {
	for i, b := range j.info.Bindings {
		n, flag := elements(j.outShape), "--out-shape "+j.cmd.OutShape
		if in := j.inputs[i]; in != nil {
			n, flag = elements(in.shape), "--in "+in.path
			if in.path == "" {
				flag = "--random " + j.cmd.Random
			}
		}
		if limit := j.describe.MaxBufferBytes / npy.ElementBytes; n > limit {
			return usagef("%s: these are %s elements for %s; a buffer of %s has room for %s", flag, countText(n), b.Name, j.device, countText(limit))
		}
	}
	return nil
}
