package qemu

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/qemu/qmp"
)

func TestEduBars(t *testing.T) {
	const said = "  Bus  0, device   1, function 0:\r\n    PCI bridge: PCI device 1b36:000c\r\n      BAR0: 32 bit memory at 0xfea00000 [0xfea00fff].\r\n" +
		"  Bus  1, device   0, function 0:\r\n    Class 0255: PCI device 1234:11e8\r\n      IRQ 0, pin A\r\n      BAR0: 32 bit memory at 0xfe800000 [0xfe8fffff].\r\n      id \"edu0\"\r\n" +
		"  Bus  2, device   0, function 0:\r\n    Class 0255: PCI device 1234:11e8\r\n      BAR0: 32 bit memory at 0xffffffffffffffff [0x000ffffe].\r\n"
	require.Equal(t, []uint64{0xfe800000}, eduBars(said))
	require.Empty(t, eduBars("  Bus  0, device   0, function 0:\r\n    Host bridge: PCI device 8086:29c0\r\n"))
}

// monitorOf is the monitor of a machine with two processors. transcript() returns their state
// at each request for the registers.
func monitorOf(t *testing.T, transcript func() Transcript) *qmp.Client {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		_, _ = io.WriteString(theirs, "{\"QMP\": {}}\n")
		answers := map[string]string{}
		for in := bufio.NewScanner(theirs); in.Scan(); {
			var request struct {
				ID        uint64
				Arguments map[string]string
			}
			if json.Unmarshal(in.Bytes(), &request) != nil {
				return
			}
			command := request.Arguments["command-line"]
			if command == "info registers -a" {
				answers = map[string]string{}
				about := command
				for _, line := range transcript() {
					if _, cpu, ok := strings.Cut(line, "dumping local APIC state for CPU "); ok {
						about = "info lapic " + cpu
					}
					answers[about] += strings.TrimPrefix(line, "qemu: ") + "\r\n"
				}
			}
			answer, _ := json.Marshal(map[string]any{"id": request.ID, "return": answers[command]})
			_, _ = theirs.Write(append(answer, '\n'))
		}
	}()
	monitor, err := qmp.New(t.Context(), ours)
	require.NoError(t, err)
	t.Cleanup(func() { monitor.Close() })
	return monitor
}

// TestDeafIsSeen: a processor that is deaf each time that it is looked at is, and none
// that is so once only, as answers of different moments can make it look.
func TestDeafIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name string
		well int // the look at which it is well; 0 = never
		want string
	}{{"deaf", 0, "1"}, {"well", 1, ""}, {"well at last", sureLooks, ""}} {
		t.Run(tt.name, func(t *testing.T) {
			looks := 0
			monitor := monitorOf(t, func() Transcript {
				guest := deafGuest()
				if looks++; looks == tt.well {
					guest[len(guest)-2] = "qemu: ISR\t (none)"
				}
				return guest
			})
			require.Equal(t, tt.want, deaf(t.Context(), 2, monitor, time.Millisecond))
		})
	}
	require.Empty(t, deaf(t.Context(), 2, nil, time.Millisecond))
}
