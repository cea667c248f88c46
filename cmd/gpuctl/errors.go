package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// The exit statuses; the package comment explains them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
	exitInterrupted = 130
)

// usageError is an invalid command line.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// dialError is a service that could not be reached.
type dialError struct {
	path string
	err  error
	whom peer
}

// peer is the server of a socket.
type peer int

const (
	toService     peer = iota // device-manager, on a tenant's socket
	toOperator                // device-manager, on the operator's socket
	toModelServer             // model-server, on the socket of --rpc
)

func (p peer) String() string {
	switch p {
	case toOperator:
		return "device-manager"
	case toModelServer:
		return "model server"
	}
	return "service"
}

func (e *dialError) Error() string {
	return fmt.Sprintf("cannot reach the %v at %s: %v", e.whom, e.path, e.err)
}
func (e *dialError) Unwrap() error { return e.err }

// failedWork is work with an end other than ok. The command has printed it.
type failedWork struct{ exit int }

func (e *failedWork) Error() string { return "the work failed" }

// hinted adds a remedy to an error.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// report is an error for people and for scripts.
type report struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Asked     uint64 `json:"asked,omitempty"`
	Available uint64 `json:"available,omitempty"`
	exit      int
	silent    bool // already printed
}

// reportOf explains an error to the user. Every report suggests a next step.
func (a *app) reportOf(ctx context.Context, err error) report {
	var (
		failed *failedWork
		usage  *usageError
		dial   *dialError
		hint   *hinted
	)

	switch {
	case errors.As(err, &failed):
		return report{exit: failed.exit, silent: true}
	case errors.As(err, &usage):
		r := report{Code: "usage", Message: usage.msg, Hint: a.helpHint(), exit: exitUsage}
		if errors.As(err, &hint) {
			r.Hint = hint.hint
		}
		return r
	case ctx.Err() != nil:
		return report{Code: "interrupted", Message: "interrupted", Hint: "Nothing runs any more. Start it again when you want the result.", exit: exitInterrupted}
	case errors.As(err, &dial):
		return dialReport(dial)
	}

	r := serviceReport(err)
	if errors.As(err, &hint) {
		r.Hint = hint.hint
	}

	return r
}

// helpHint names the page that explains the current command.
func (a *app) helpHint() string {
	what := "explains what it takes"
	if a.command == "gpuctl" || a.command == "gpuctl audit" {
		what = "lists the commands"
	}
	return fmt.Sprintf(`"%s --help" %s.`, a.command, what)
}

// maxSocketPath is the longest path of a socket on Linux.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// dialReport names the usual reasons for a missing answer.
func dialReport(e *dialError) report {
	r := report{Code: gpuerr.Disconnected.String(), Message: fmt.Sprintf("there is no %v at %s", e.whom, e.path), exit: exitUnreachable}
	nobody := errors.Is(e.err, fs.ErrNotExist) || errors.Is(e.err, syscall.ECONNREFUSED) && isSocket(e.path)
	switch {
	case errors.Is(e.err, syscall.EINVAL) && len(e.path) > maxSocketPath:
		r.Code, r.exit = "usage", exitUsage
		r.Message = fmt.Sprintf("the path of the socket has %d bytes, and a socket's has at most %d: %s", len(e.path), maxSocketPath, e.path)
		r.Hint = "Change to its folder and name it with a relative path, or through a short symbolic link."

	case nobody && e.whom == toModelServer:
		r.Hint = "Start one (model-server --model FILE --rpc PATH), or load a model here with --model."
	case nobody && errors.Is(e.err, syscall.ECONNREFUSED):
		r.Hint = "The socket is there but nobody listens: device-manager has stopped. Start it again."

	case nobody && e.whom == toOperator:
		r.Hint = "Start device-manager, or name its admin socket with --admin PATH: manager.admin.sock in its run directory."
	case nobody:
		r.Hint = "Start device-manager, or name its tenant socket with --socket PATH or $CAPGPU_SOCKET."

	case errors.Is(e.err, syscall.ECONNREFUSED):
		r.Message = fmt.Sprintf("%s is not a socket", e.path)
		r.Hint = map[peer]string{
			toService:     "Name the tenant socket of the service with --socket PATH or $CAPGPU_SOCKET.",
			toOperator:    "Name the admin socket of device-manager with --admin PATH: manager.admin.sock in its run directory.",
			toModelServer: "Name the socket that model-server was given with --rpc.",
		}[e.whom]

	case errors.Is(e.err, syscall.EPROTOTYPE) && e.whom == toOperator:
		r.Message = fmt.Sprintf("%s is not the admin socket", e.path)
		r.Hint = "It is manager.admin.sock in the run directory of device-manager."

	case errors.Is(e.err, syscall.EPROTOTYPE):
		r.Message = fmt.Sprintf("%s is not a tenant socket", e.path)
		r.Hint = "A name that ends in .capnp.sock is for Cap'n Proto clients; use the one beside it without .capnp."

	case errors.Is(e.err, fs.ErrPermission):
		r.Code, r.exit = gpuerr.Denied.String(), exitRefused
		r.Message = fmt.Sprintf("no permission to use %s", e.path)
		r.Hint = map[peer]string{
			toService:     "The socket belongs to another tenant. Ask the operator which socket is yours.",
			toOperator:    "This command is the operator's: run it as the user that device-manager runs as, root unless in developer mode.",
			toModelServer: "The socket is for a user or group that you are not. Ask who runs the model server.",
		}[e.whom]

	case errors.Is(e.err, context.DeadlineExceeded):
		r.Message = fmt.Sprintf("the %v at %s does not answer", e.whom, e.path)
		r.Hint = "It may be overloaded or stopped; look at its log."

	default:
		s := serviceReport(e.err)
		if s.exit == exitUnreachable {
			s.Message = fmt.Sprintf("the %v at %s ended the connection: %s", e.whom, e.path, s.Message)
		}
		return s
	}

	return r
}

// pathText describes an error with a file.
func pathText(e *fs.PathError) string {
	return fmt.Sprintf("cannot %s %s: %v", e.Op, e.Path, e.Err)
}

// pathHint suggests a remedy. Op is "write" for output files.
func pathHint(e *fs.PathError) string {
	write := e.Op == "write"
	switch {
	case errors.Is(e.Err, syscall.ENOTDIR), errors.Is(e.Err, fs.ErrNotExist):
		if write {
			return fmt.Sprintf("Make the folder %s first, or save elsewhere.", filepath.Dir(e.Path))
		}
		return "Check the path; a relative one starts in the folder where gpuctl runs."

	case errors.Is(e.Err, fs.ErrPermission), errors.Is(e.Err, syscall.EROFS):
		if write {
			return "Save it in a folder where you may write."
		}
		return "Ask its owner to let you read it, or run gpuctl as a user who may."

	case errors.Is(e.Err, syscall.EISDIR):
		return "Name a file in that folder."
	case errors.Is(e.Err, syscall.ENOSPC), errors.Is(e.Err, syscall.EDQUOT):
		return "Free space on that disk and run the command again."

	case write:
		return "Save it elsewhere."
	}

	return "Name another file, or look at the kernel's log (dmesg) for a failing disk."
}

func isSocket(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Type() == fs.ModeSocket
}

// serviceReport describes an error of the service.
func serviceReport(err error) report {
	var pathErr *fs.PathError
	var typed *gpuerr.Error
	if !errors.As(err, &typed) {
		var code gpuerr.Code
		var damage *audit.Damage
		switch {
		case errors.As(err, &damage):
			return report{Code: gpuerr.IO.String(), Message: fmt.Sprintf("audit record %d, at %s, is not as it was written: %s", damage.Index, damage.Place(), damage.Reason), Hint: "Keep the file as it is, and look for a copy.", exit: exitFailed}
		case errors.As(err, &code):
			typed = &gpuerr.Error{Code: code, Msg: err.Error()}
		case errors.As(err, &pathErr):
			return report{Code: gpuerr.IO.String(), Message: pathText(pathErr), Hint: pathHint(pathErr), exit: exitFailed}
		case errors.Is(err, context.DeadlineExceeded):
			return report{Code: gpuerr.Busy.String(), Message: "the service did not answer in time", Hint: "Try again; if it stays so, look at device-manager's log.", exit: exitUnreachable}
		default:
			return report{Code: gpuerr.IO.String(), Message: err.Error(), Hint: advices[gpuerr.IO].hint, exit: exitFailed}
		}
	}

	r := report{Code: typed.Code.String(), Message: typed.Msg, Resource: typed.Resource, Asked: typed.Asked, Available: typed.Available}
	r.Message = strings.TrimPrefix(r.Message, r.Code+": ")
	advice, known := advices[typed.Code]
	if !known {
		advice = advices[gpuerr.Internal]
	}

	r.exit, r.Hint = advice.exit, advice.hint
	if typed.Code == gpuerr.IO {
		for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EISDIR, syscall.ENOSPC} {
			if strings.HasSuffix(typed.Msg, errno.Error()) { // an error number does not cross a socket
				r.Hint = pathHint(&fs.PathError{Err: errno})
			}
		}
	}

	if typed.Code == gpuerr.Quota && typed.Resource != "" {
		asked, available := amount(typed.Resource, typed.Asked), amount(typed.Resource, typed.Available)
		if asked == available { // but for the rounding
			asked, available = countText(typed.Asked), countText(typed.Available)
		}
		r.Message = fmt.Sprintf("over the limit of %s: %s asked, %s available", typed.Resource, asked, available)
	}

	if typed.Code == gpuerr.Quota && typed.Resource == ledger.Connections.String() {
		// Without a connection nothing can be asked, but the service has already
		// named the remedy.
		r.Hint = "Run the command again when a connection is free."
		if typed.Msg != "" {
			r.Message += ": " + typed.Msg
		}
	}

	if r.Message == "" {
		r.Message = advice.text
	}

	r.Message += " (" + r.Code + ")"
	return r
}

type advice struct {
	text string // if the service gave no text
	hint string
	exit int
}

var advices = map[gpuerr.Code]advice{
	gpuerr.Invalid:       {"an argument is outside its range", "Correct the value that the message names; --help explains the options.", exitUsage},
	gpuerr.Quota:         {"over a limit", `"gpuctl budget" shows what is in use. Use less, end other work, or ask the operator for a larger limit.`, exitRefused},
	gpuerr.QueueFull:     {"the queue is full", "Try again.", exitRefused},
	gpuerr.Stale:         {"the object is gone", "Run the command again.", exitUnreachable},
	gpuerr.Revoked:       {"the session was revoked", "The operator or the service ended it; run the command again or ask the operator.", exitUnreachable},
	gpuerr.Closed:        {"the session was closed", "Run the command again.", exitUnreachable},
	gpuerr.Disconnected:  {"the connection to the driver was lost", `The driver stopped; "gpuctl devices" tells when it is ready again. Run the command again then.`, exitUnreachable},
	gpuerr.DeviceLost:    {"the device is gone", `"gpuctl devices" tells whether it comes back.`, exitUnreachable},
	gpuerr.Unimplemented: {"this tenant may not do that", `"gpuctl devices" shows what the tenant may do with the device (memory, program or full).`, exitRefused},
	gpuerr.NoDevice:      {"there is no such device", `"gpuctl devices" lists them; choose one with --device.`, exitRefused},
	gpuerr.NoProgram:     {"there is no such program", `"gpuctl programs" shows what there is; a file is named with its ending or a /, like ./name.spv.`, exitRefused},
	gpuerr.Program:       {"the program was refused", `"gpuctl disasm" shows the module at the place that the message names; docs/program-profile.md explains the code.`, exitRefused},
	gpuerr.LaunchLimit:   {"the launch exceeds a limit of the device", "Use a smaller --grid or --block, or leave them out.", exitRefused},
	gpuerr.Protocol:      {"the service answered something unexpected", "gpuctl and the service are probably of different versions: use the gpuctl that came with the service.", exitUnreachable},
	gpuerr.Denied:        {"the policy refuses", "Ask the operator to allow it.", exitRefused},
	gpuerr.Busy:          {"the device is not ready", `It is starting or recovering: try again in a moment ("gpuctl devices" shows its state).`, exitRefused},
	gpuerr.Banned:        {"the tenant is banned after too many faults", `Wait until the ban is over ("gpuctl budget" shows how long), or ask the operator.`, exitRefused},
	gpuerr.Poisoned:      {"earlier work of this session failed", "Correct the program that the message names and run the command again.", exitFailed},
	gpuerr.Version:       {"the two drivers are of versions that do not fit", "Install drivers of one version, or restart device-manager. Nothing was changed.", exitRefused},
	gpuerr.Internal:      {"the service has a bug", "Report it, with what device-manager's log says.", exitFailed},
	gpuerr.IO:            {"the host refused memory or a file", "Free memory, disk space or open files on this host and run the command again.", exitFailed},
}
