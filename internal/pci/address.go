package pci

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"capgpu/gpuerr"
)

// Address names a function: "0000:01:00.0" is domain, bus, device and function.
// The zero value is the function 0000:00:00.0.
type Address struct {
	Domain   uint32 // 0000 but on hosts with several root complexes, or behind VMD
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseAddress reads "0000:01:00.0" or, for domain 0, "01:00.0", in lower or upper
// case.
func ParseAddress(s string) (Address, error) {
	a, ok := parseAddress(s)
	if !ok {
		return Address{}, gpuerr.New(gpuerr.Invalid, "%.40q is no PCI address; write it like 0000:01:00.0 (lspci -D lists them)", s)
	}
	return a, nil
}

func parseAddress(s string) (a Address, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 {
		return a, false
	}

	device, function, found := strings.Cut(parts[2], ".")

	// The kernel prints domains with four digits, and with more where there are.
	if !found || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(device) != 2 || len(function) != 1 {
		return a, false
	}
	if len(parts[0]) > 4 && parts[0][0] == '0' {
		return a, false
	}

	var n [4]uint64
	for i, field := range []struct {
		text string
		max  uint64
	}{{parts[0], 1<<32 - 1}, {parts[1], 0xff}, {device, 0x1f}, {function, 7}} {
		v, err := strconv.ParseUint(field.text, 16, 32)
		if err != nil || v > field.max {
			return a, false
		}
		n[i] = v
	}

	return Address{uint32(n[0]), uint8(n[1]), uint8(n[2]), uint8(n[3])}, true
}

// String is the long form, as sysfs has it.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Compare orders addresses as lspci does.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

// MarshalText is String.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAddress.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}
