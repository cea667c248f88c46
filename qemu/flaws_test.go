package qemu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// deafGuest is the autopsy of a guest that stood still.
func deafGuest() Transcript {
	return Transcript{
		"=== RUN   TestSomething",
		"qemu: CPU#0",
		"qemu: RIP=ffffffffb5c93f8f RFL=00000212 [----A--] CPL=0 II=0 A20=1 SMM=0 HLT=1",
		"qemu: CPU#1",
		"qemu: RIP=ffffffffb5c93f8f RFL=00000216 [----AP-] CPL=0 II=0 A20=1 SMM=0 HLT=1",
		"qemu: dumping local APIC state for CPU 0",
		"qemu: LVTTHMR\t 0x00010000 active-hi edge  masked                      Fixed  (vec 0)",
		"qemu: LVTT\t 0x000000ec active-hi edge                 one-shot     Fixed  (vec 236)",
		"qemu: Timer\t DCR=0x3 (divide by 16) initial_count = 190073279 current_count = 167859422",
		"qemu: ISR\t (none)",
		"qemu: IRR\t (none)",
		"qemu: dumping local APIC state for CPU 1",
		"qemu: LVTTHMR\t 0x00010000 active-hi edge  masked                      Fixed  (vec 0)",
		"qemu: LVTT\t 0x000000ec active-hi edge                 one-shot     Fixed  (vec 236)",
		"qemu: Timer\t DCR=0x3 (divide by 16) initial_count = 7974 current_count = 0",
		"qemu: ISR\t 236",
		"qemu: IRR\t 49 236",
	}
}

func TestDeafProcessor(t *testing.T) {
	require.Equal(t, "1", deafGuest().deafTo())
	require.Contains(t, deafGuest().flaw(), "processor 1 is halted")
	for at, line := range map[int]string{
		4:  "qemu: RIP=ffffffffb5c93f8f RFL=00000216 [----AP-] CPL=0 II=0 A20=1 SMM=0 HLT=0",
		14: "qemu: Timer\t DCR=0x3 (divide by 16) initial_count = 7974 current_count = 10",
		15: "qemu: ISR\t (none)",
		16: "qemu: IRR\t (none)",
	} {
		guest := deafGuest()
		guest[at] = line
		require.Empty(t, guest.flaw(), "%s", line)
	}
	guest := deafGuest()
	for i := range guest { // what the guest itself says
		guest[i] = "[    1.0] " + guest[i]
	}
	require.Empty(t, guest.flaw())
	require.Empty(t, Transcript{"qemu: ", "qemu: ISR", "qemu: IRR", "qemu: dumping", ""}.flaw())
}
