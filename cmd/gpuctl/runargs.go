package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/gpuerr"
	"capgpu/program"
)

// parseDim reads "X", "X,Y" or "X,Y,Z"; missing dimensions are 1, "" is zero.
func parseDim(flag, s string) (program.Dim3, error) {
	if s == "" {
		return program.Dim3{}, nil
	}

	n := [3]uint32{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return program.Dim3{}, usagef("%s %s: at most three dimensions, X,Y,Z", flag, s)
	}

	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil || v == 0 {
			return program.Dim3{}, usagef("%s %s: %q is not a whole number from 1 up", flag, s, p)
		}
		n[i] = uint32(v)
	}

	return program.Dim3{X: n[0], Y: n[1], Z: n[2]}, nil
}

// parseShape reads "N" or "NxM".
func parseShape(flag, s string) ([]uint64, error) {
	if s == "" {
		return nil, nil
	}
	var shape []uint64
	for _, p := range strings.Split(s, "x") {
		v, err := strconv.ParseUint(p, 10, 40)
		if err != nil || v == 0 {
			return nil, usagef("%s: write N or NxM, with whole numbers from 1 up", flag)
		}
		shape = append(shape, v)
	}
	if len(shape) > 2 || elements(shape) > math.MaxInt64/npy.MaxElementBytes {
		return nil, usagef("%s: at most two dimensions, and fewer elements", flag)
	}
	return shape, nil
}

// commonShape reads the --out-shape that is for all outputs.
func (w *work) commonShape() (err error) {
	for _, s := range w.args.OutShape {
		if strings.Contains(s, "=") {
			continue
		}
		if w.outShape != nil {
			return usagef("--out-shape %s: there is one for all outputs already; write NAME=SHAPE for one of them", s)
		}
		if w.outShape, err = parseShape("--out-shape "+s, s); err != nil {
			return err
		}
	}
	return nil
}

// namedShapes reads those of single outputs.
func (w *work) namedShapes() error {
	w.outShapes = make([][]uint64, len(w.info.Bindings))
	for _, s := range w.args.OutShape {
		name, shape, named := strings.Cut(s, "=")
		if !named {
			continue
		}
		i := slices.IndexFunc(w.info.Bindings, func(b program.Binding) bool { return b.Name == name && b.Access&program.Write != 0 })
		switch {
		case i < 0:
			return usagef("--out-shape %s: %s writes no binding %s", s, w.info.Name, name)
		case w.outShapes[i] != nil:
			return usagef("--out-shape %s: %s has a shape already", s, name)
		}
		n, err := parseShape("--out-shape "+s, shape)
		if err != nil {
			return err
		}
		if n == nil {
			return usagef("--out-shape %s: write %s=N or %s=NxM", s, name, name)
		}
		w.outShapes[i] = n
	}
	return nil
}

// parseRandom reads how many elements --random generates; 0: none.
func parseRandom(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > math.MaxInt64/npy.MaxElementBytes:
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
		best := devices[0]
		for _, d := range devices {
			if d.State == client.Ready && !d.Suspended {
				return d, nil
			}
			if d.State == client.Ready && best.State != client.Ready {
				best = d
			}
		}
		return best, nil
	}

	for _, d := range devices {
		if want == d.Name || want == strconv.FormatUint(uint64(d.Index), 10) {
			return d, nil
		}
	}

	return client.DeviceInfo{}, gpuerr.New(gpuerr.NoDevice, "there is no device %q", want)
}

// assign distributes FILE and NAME=FILE arguments over the bindings that have
// the given access: first those with a name, then the others in order. The result
// has one entry for each binding.
func assign(info info, access program.Access, args []string, flag string) ([]string, error) {
	files := make([]string, len(info.Bindings))
	var names []string
	for _, b := range info.Bindings {
		if b.Access&access != 0 {
			names = append(names, b.Name)
		}
	}

	verb := map[program.Access]string{program.Read: "reads", program.Write: "writes"}[access]
	has := fmt.Sprintf("%s %s %s", info.Name, verb, listText(names))
	var unnamed []string
	for _, arg := range args {
		name, file, named := strings.Cut(arg, "=")
		if !named || strings.Contains(name, "/") {
			unnamed = append(unnamed, arg)
			continue
		}

		i := slices.IndexFunc(info.Bindings, func(b program.Binding) bool { return b.Name == name })
		switch {
		case i < 0:
			return nil, &hinted{usagef("%s %s: %s has no binding %s; it %s %s", flag, arg, info.Name, name, verb, listText(names)),
				fmt.Sprintf("If the file's name has a =, write it as %s ./%s.", flag, arg)}
		case info.Bindings[i].Access&access == 0 && access != program.Read:
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

func elementsText(shape []uint64) string {
	n := elements(shape)
	if n == 1 {
		return "1 element"
	}
	return countText(n) + " elements"
}
