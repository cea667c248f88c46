package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"capgpu/gpuerr"
)

// type1 functions: every kernel with vfio has some of these. They find its text if it is no
// module.
var type1Functions = []string{"vfio_iommu_type1_ioctl", "vfio_iommu_type1_attach_group", "vfio_iommu_type1_detach_group", "vfio_unmap_unpin", "vfio_pin_map_dma", "vfio_remove_dma"}

// vfioText is where the kernel has the code of its type1 back end, [start, end).
func vfioText() ([2]uint64, error) {
	modules, err := os.ReadFile("/proc/modules")
	if err == nil {
		if text, ok := moduleText(string(modules)); ok {
			return text, nil
		}
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return [2]uint64{}, gpuerr.New(gpuerr.Unimplemented, "look for vfio in the kernel's symbols: %v", err)
	}
	defer f.Close()
	return findText(f)
}

// moduleText reads lines of "name bytes users by state address" (kernel/module/procfs.c,
// Linux 6.12). The address is that of the module's text, and the bytes are those of the whole
// module: the text is at most so long, and does not reach into another module's.
func moduleText(modules string) (text [2]uint64, ok bool) {
	starts := map[string]uint64{}
	for line := range strings.Lines(modules) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		size, err := strconv.ParseUint(f[1], 10, 32)
		start, err2 := strconv.ParseUint(strings.TrimPrefix(f[5], "0x"), 16, 64)
		if err != nil || err2 != nil || start == 0 { // hidden
			continue
		}
		starts[f[0]] = start
		if f[0] == "vfio_iommu_type1" {
			text = [2]uint64{start, start + size}
		}
	}

	for _, other := range starts {
		if other > text[0] {
			text[1] = min(text[1], other)
		}
	}

	return text, text[0] != 0
}

// maxFunctionBytes bounds the last function of the text: only its beginning is known.
const maxFunctionBytes = 16 << 10

// findText finds the text of a back end that is no module, in lines of "address type
// name\t[module]" (kernel/kallsyms.c, Linux 6.12). The text of an object file is in
// one piece; it ends where the next symbol of another one is.
func findText(r io.Reader) ([2]uint64, error) {
	var ours, others []uint64
	lines := bufio.NewScanner(r)
	for lines.Scan() { // some 200,000
		address, rest, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		if len(rest) < 3 || (rest[0] != 't' && rest[0] != 'T') {
			continue
		}
		name, in, _ := bytes.Cut(rest[2:], []byte("\t"))
		at, ok := parseHex(address)
		switch {
		case !ok || at == 0: // hidden
		case len(in) == 0 && slices.Contains(type1Functions, string(name)):
			ours = append(ours, at)
		default:
			others = append(others, at)
		}
	}

	if err := lines.Err(); err != nil {
		return [2]uint64{}, fmt.Errorf("read the kernel's symbols: %w", err)
	}
	if len(ours) == 0 {
		return [2]uint64{}, gpuerr.New(gpuerr.Unimplemented, "the kernel shows no symbols of vfio's type1 back end: it is not loaded, or kernel.kptr_restrict hides them")
	}

	start, last := slices.Min(ours), slices.Max(ours)
	end := last + maxFunctionBytes
	for _, at := range others {
		if at > last {
			end = min(end, at)
		}
	}

	return [2]uint64{start, end}, nil
}

func parseHex(text []byte) (v uint64, ok bool) {
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint64(c)
	}
	return v, len(text) > 0 && len(text) <= 16
}
