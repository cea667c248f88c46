package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/outcome"
)

// result is the report of "gpuctl run", and its JSON form.
type result struct {
	Program     string     `json:"program"`
	Device      string     `json:"device"`
	Outcome     string     `json:"outcome"` // outcome.Kind
	Cause       string     `json:"cause,omitempty"`
	Trap        *trapInfo  `json:"trap,omitempty"`
	Explanation string     `json:"explanation,omitempty"` // for people, when the outcome is not ok
	Elements    uint64     `json:"elements"`              // of the largest binding
	Bytes       uint64     `json:"bytes"`                 // of all bindings
	DeviceNanos int64      `json:"deviceNanos"`
	BytesPerSec float64    `json:"bytesPerSecond,omitempty"`
	LoadNanos   int64      `json:"loadNanos"`
	SaveNanos   int64      `json:"saveNanos,omitempty"`
	Outputs     []outputIO `json:"outputs,omitempty"`

	kind outcome.Kind
}

type trapInfo struct {
	Kind      string `json:"kind"`
	Binding   uint16 `json:"binding"`
	Name      string `json:"name,omitempty"` // of the binding
	Offset    uint64 `json:"offset"`
	Workgroup uint32 `json:"workgroup"`
	Lane      uint32 `json:"lane"`
}

type outputIO struct {
	Binding string   `json:"binding"`
	Type    string   `json:"type"`
	File    string   `json:"file,omitempty"`
	Shape   []uint64 `json:"shape"`
	First   []number `json:"first"` // the first values
}

// number is a value as text, which keeps NaN and infinities out of JSON's way.
type number string

// MarshalJSON writes a JSON number, or a string where JSON has no number.
func (n number) MarshalJSON() ([]byte, error) {
	switch n {
	case "NaN", "+Inf", "-Inf":
		return strconv.AppendQuote(nil, string(n)), nil
	}
	return []byte(n), nil
}

const previewCount = 6

func preview(t npy.DType, mem []byte) []number {
	out := []number{}
	size := int(t.Bytes())
	for i := 0; i < previewCount && (i+1)*size <= len(mem); i++ {
		out = append(out, numberOf(t, mem[i*size:]))
	}
	return out
}

// numberOf is the value at the start of mem.
func numberOf(t npy.DType, mem []byte) number {
	float := func(v float64, bits int) number { return number(strconv.FormatFloat(v, 'g', -1, bits)) }
	signed := func(v int64) number { return number(strconv.FormatInt(v, 10)) }
	unsigned := func(v uint64) number { return number(strconv.FormatUint(v, 10)) }
	le := binary.LittleEndian
	switch t {
	case npy.F16:
		return float(halfValue(le.Uint16(mem)), 32)

	case npy.F32:
		return float(float64(math.Float32frombits(le.Uint32(mem))), 32)
	case npy.F64:
		return float(math.Float64frombits(le.Uint64(mem)), 64)

	case npy.U8:
		return unsigned(uint64(mem[0]))
	case npy.U16:
		return unsigned(uint64(le.Uint16(mem)))

	case npy.U32:
		return unsigned(uint64(le.Uint32(mem)))
	case npy.U64:
		return unsigned(le.Uint64(mem))

	case npy.I8:
		return signed(int64(int8(mem[0])))
	case npy.I16:
		return signed(int64(int16(le.Uint16(mem))))

	case npy.I32:
		return signed(int64(int32(le.Uint32(mem))))
	default:
		return signed(int64(le.Uint64(mem)))
	}
}

// halfValue is the value of a 16-bit float (IEEE 754 binary16).
func halfValue(h uint16) float64 {
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	v := math.Ldexp(1024+fraction, exponent-25)
	switch {
	case exponent == 0:
		v = math.Ldexp(fraction, -24)
	case exponent == 31 && fraction == 0:
		v = math.Inf(1)
	case exponent == 31:
		return math.NaN()
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}

func (r *result) addOutput(binding, file string, t npy.DType, shape []uint64, first []number) {
	r.Outputs = append(r.Outputs, outputIO{Binding: binding, Type: t.String(), File: file, Shape: shape, First: first})
}

// setOutcome records how the launch ended.
func (r *result) setOutcome(j *job, c client.Completion) {
	o := c.Outcome
	r.kind, r.Outcome = o.Kind, o.Kind.String()
	for i, mem := range j.memory {
		r.Bytes += uint64(len(mem))
		r.Elements = max(r.Elements, uint64(len(mem))/j.types[i].Bytes())
	}

	r.DeviceNanos = c.DeviceTime.Nanoseconds()
	if c.DeviceTime > 0 {
		r.BytesPerSec = float64(r.Bytes) / c.DeviceTime.Seconds()
	}
	if o.Kind == outcome.OK {
		return
	}
	if o.Cause != outcome.NoCause {
		r.Cause = o.Cause.String()
	}

	if o.Cause == outcome.TrapCause {
		r.Trap = &trapInfo{Kind: o.Trap.Kind.String(), Binding: o.Trap.Binding, Offset: o.Trap.Offset, Workgroup: o.Trap.Workgroup, Lane: o.Trap.Lane}
		if int(o.Trap.Binding) < len(j.info.Bindings) {
			r.Trap.Name = j.info.Bindings[o.Trap.Binding].Name
		}
	}

	r.Explanation = explain(o, r.Trap, j)
}

// explain describes an outcome other than ok in plain words.
func explain(o outcome.Outcome, trap *trapInfo, j *job) string {
	switch o.Kind {
	case outcome.Failed:
		switch o.Cause {
		case outcome.TrapCause:
			return explainTrap(o.Trap.Kind, trap, j)
		case outcome.LaunchLimit:
			return "The launch exceeds a limit of the device; use a smaller --grid or --block."
		case outcome.Protocol:
			return "The service found the request malformed; gpuctl and the service are probably of different versions."
		case outcome.IOMMUFault:
			return "The device reached for memory that it was not granted while the program ran; the IOMMU refused, and nothing was changed there. If another program on this device ends so too, tell the operator."
		}
		return "The device reported an error. Run it again; if that repeats, look at device-manager's log."

	case outcome.TimedOut:
		limit := "its deadline"
		if j.cmd.Deadline > 0 {
			limit += " of " + durationText(j.cmd.Deadline)
		}
		return fmt.Sprintf("The work missed %s and was stopped. --deadline sets it, up to %s for this tenant.", limit, durationText(j.describe.MaxDeadline))

	case outcome.Innocent:
		return "Another's work disturbed the device; this program did nothing wrong. Run it again."
	case outcome.Cancelled:
		return "The work was cancelled before it was done. Nothing was saved; run it again to have the result."

	case outcome.Revoked:
		return "The session was ended by the service while the work was running. Run it again, or ask the operator why."
	case outcome.DeviceLost:
		return `The device or its driver was lost while the work was running; "gpuctl devices" tells when it is ready again. Run it again then.`
	}
	return "The work ended in a way that this gpuctl does not know; take one of the service's version."
}

func explainTrap(kind outcome.TrapKind, t *trapInfo, j *job) string {
	where := fmt.Sprintf("in workgroup %s, lane %d", countText(uint64(t.Workgroup)), t.Lane)
	binding := fmt.Sprintf("binding %d", t.Binding)
	if t.Name != "" {
		binding += " (" + t.Name + ")"
	}

	at := fmt.Sprintf("at byte %s of %s", countText(t.Offset), binding)
	switch kind {
	case outcome.OutOfBounds:
		if t.Binding == outcome.NoBinding {
			return fmt.Sprintf("The program used a part that a variable of its own (local, shared or inline) does not have, at byte %s of the variable, %s. "+
				`Correct the index; "gpuctl check" tells the line.`, countText(t.Offset), where)
		}
		size := ""
		if int(t.Binding) < len(j.memory) {
			size = fmt.Sprintf(", which has %s bytes", countText(uint64(len(j.memory[t.Binding]))))
		}
		return fmt.Sprintf("The program reached outside its memory %s%s, %s. Give it larger inputs or a smaller --grid, or correct the program.", at, size, where)

	case outcome.Misaligned:
		return fmt.Sprintf("The program made a misaligned access %s, %s. Correct the program.", at, where)
	case outcome.DivideByZero:
		return fmt.Sprintf("The program divided an integer by zero %s. Look for a zero in its inputs, or correct the program.", where)

	case outcome.Unreachable:
		return fmt.Sprintf("The program came to a place it calls unreachable, %s. Check its inputs, or correct the program.", where)
	case outcome.DivergentBarrier:
		return fmt.Sprintf("Some lanes of a workgroup did not reach a barrier that the others wait at, %s. Correct the program; \"gpuctl check\" tells the line.", where)

	case outcome.DataRace:
		return fmt.Sprintf("Two lanes used the same memory, %s, with no barrier between, %s. Correct the program.", at, where)
	case outcome.Uninitialized:
		return fmt.Sprintf("The program read shared memory before it wrote it, %s. Correct the program.", where)

	case outcome.MemoryGone:
		return fmt.Sprintf("The memory under %s could not be read, %s. Run it again; if that repeats, look at device-manager's log.", binding, where)
	}

	return fmt.Sprintf("The program trapped %s. Check its inputs, or correct the program.", where)
}

// printResult prints the result and turns an outcome that is not ok into an
// exit status.
func (a *app) printResult(r *result) error {
	if a.json {
		a.printJSON(r)
	} else {
		a.printResultText(r)
	}
	switch r.kind {
	case outcome.OK:
		return nil
	case outcome.Cancelled:
		return &failedWork{exitInterrupted}
	case outcome.Revoked, outcome.DeviceLost:
		return &failedWork{exitUnreachable}
	}
	return &failedWork{exitFailed}
}

func (a *app) printResultText(r *result) {
	fmt.Fprintf(a.out, "%s on %s: %s\n", visible(r.Program), visible(r.Device), kindText(r.kind))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "  %-12s %s\n", visible(name), visible(fmt.Sprintf(format, args...)))
	}

	if r.Explanation != "" {
		fmt.Fprintf(a.out, "  %s\n", visible(r.Explanation))
	}
	if r.Elements > 0 {
		line("elements", "%s", countText(r.Elements))
	}
	if r.kind != outcome.OK {
		return // the measurements mean nothing
	}

	line("device time", "%s", durationText(time.Duration(r.DeviceNanos)))
	if r.BytesPerSec > 0 {
		line("throughput", "%s/s over %s", bytesText(uint64(r.BytesPerSec)), bytesText(r.Bytes))
	}

	line("loading", "%s", durationText(time.Duration(r.LoadNanos)))
	if r.SaveNanos > 0 {
		line("saving", "%s", durationText(time.Duration(r.SaveNanos)))
	}

	for _, o := range r.Outputs {
		values := make([]string, len(o.First))
		for i, v := range o.First {
			values[i] = string(v)
		}
		if elements(o.Shape) > uint64(len(values)) {
			values = append(values, "...")
		}
		line(o.Binding, "%s %s  %s", shapeText(o.Shape), o.Type, strings.Join(values, " "))
		if o.File != "" {
			line("", "saved to %s", o.File)
		}
	}
}

// kindText is an outcome in words.
func kindText(k outcome.Kind) string {
	switch k {
	case outcome.TimedOut:
		return "timed out"
	case outcome.DeviceLost:
		return "device lost"
	case outcome.Innocent:
		return "reset by another's fault"
	}
	return k.String()
}

func shapeText(shape []uint64) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		parts[i] = strconv.FormatUint(d, 10)
	}
	return "[" + strings.Join(parts, " x ") + "]"
}
