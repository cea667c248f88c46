package rpcguard

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/gpuerr"
)

// maxReasonBytes bounds the text of an exception.
const maxReasonBytes = 2048

var excTypes = map[gpuerr.Class]exc.Type{
	gpuerr.ClassFailed:        exc.Failed,
	gpuerr.ClassOverloaded:    exc.Overloaded,
	gpuerr.ClassDisconnected:  exc.Disconnected,
	gpuerr.ClassUnimplemented: exc.Unimplemented,
}

// Exception returns err as the Cap'n Proto exception that a client sees: its type is the
// class of err's gpuerr.Code, its reason is "E_CODE operands: message". It is a top-level
// *exc.Exception, because go-capnp transmits the type of no other error. A context's end is
// E_CLOSED (the caller went away) or, for a deadline, E_BUSY. Nil stays nil.
func Exception(err error) error {
	if err == nil {
		return nil
	}
	return exceptionOf(err)
}

func exceptionOf(err error) *exc.Exception {
	if e, ok := err.(*exc.Exception); ok && codeIn(e.Error()) != nil {
		return e
	}

	var coded *gpuerr.Error
	var code gpuerr.Code
	var foreign *exc.Exception
	switch {
	case errors.As(err, &coded), errors.As(err, &code):
	case errors.Is(err, context.Canceled):
		err = gpuerr.New(gpuerr.Closed, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		err = gpuerr.New(gpuerr.Busy, "the call took too long; try again")
	case errors.As(err, &foreign) && foreign.Type == exc.Unimplemented:
		err = gpuerr.New(gpuerr.Unimplemented, "%s", err.Error())
	}

	e := gpuerr.From(err)
	reason := e.Error()
	if len(reason) > maxReasonBytes {
		reason = strings.ToValidUTF8(reason[:maxReasonBytes], "")
	}

	return &exc.Exception{Type: excTypes[e.Code.Class()], Cause: errors.New(reason)}
}

// FromException is the inverse, on the side of a Go client: the *gpuerr.Error
// that an exception carries. An exception that does not start with one of our
// codes, such as that of a broken connection, gets the code of its type:
// disconnected is E_DISCONNECTED, overloaded E_BUSY, unimplemented
// E_UNIMPLEMENTED, failed E_INTERNAL. An error of this process (a context's
// end) is returned as it is. Nil stays nil.
func FromException(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if e := codeIn(err.Error()); e != nil {
		return e
	}

	var ex *exc.Exception
	if !errors.As(err, &ex) {
		return err
	}
	if errors.Is(err, rpc.ErrConnClosed) { // which a call that could not be sent makes "failed" of
		return gpuerr.New(gpuerr.Disconnected, "%s", err.Error())
	}

	switch ex.Type {
	case exc.Disconnected:
		return gpuerr.New(gpuerr.Disconnected, "%s", err.Error())
	case exc.Overloaded:
		return gpuerr.New(gpuerr.Busy, "%s", err.Error())
	case exc.Unimplemented:
		return gpuerr.New(gpuerr.Unimplemented, "%s", err.Error())
	default:
		return gpuerr.New(gpuerr.Internal, "%s", err.Error())
	}
}

var codesByName = func() map[string]gpuerr.Code {
	m := make(map[string]gpuerr.Code)
	for _, c := range gpuerr.Codes() {
		m[c.String()] = c
	}
	return m
}()

// codeIn parses the first "E_CODE [resource] [asked=n available=n][: message]"
// of s, which go-capnp prefixes with the method's name; nil when there is none.
func codeIn(s string) *gpuerr.Error {
	at := 0
	for {
		i := strings.Index(s[at:], "E_")
		if i < 0 {
			return nil
		}
		at += i
		end := at + 2
		for end < len(s) && (s[end] == '_' || s[end] >= 'A' && s[end] <= 'Z') {
			end++
		}
		startsWord := at == 0 || s[at-1] == ' '
		if code, ok := codesByName[s[at:end]]; ok && startsWord {
			return parseOperands(code, s[end:])
		}
		at = end
	}
}

func parseOperands(code gpuerr.Code, rest string) *gpuerr.Error {
	operands, msg, _ := strings.Cut(rest, ":")
	e := &gpuerr.Error{Code: code, Msg: strings.TrimSpace(msg)}
	for _, word := range strings.Fields(operands) {
		key, value, isPair := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case !isPair:
			e.Resource = word
		case err != nil:
		case key == "asked":
			e.Asked = n
		case key == "available":
			e.Available = n
		}
	}

	return e
}
