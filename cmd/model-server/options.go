package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"capgpu/client"
	"capgpu/internal/cmdline"
	"capgpu/model/llama"
)

const usage = `model-server - serves a language model from a GPU session

usage: model-server --model FILE [--listen ADDRESS]... [--rpc PATH] [options]

It opens one session on a device of a capgpu service, copies the model into
buffers of that session, and answers requests: over HTTP, as the API of OpenAI
and a page for a browser, and over Cap'n Proto. It needs nothing else of the
machine. When the device or its driver goes, requests that had begun fail, and
the model is loaded again as soon as there is a device.

model:
  --model FILE       GGUF (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K
                     to Q6_K, IQ4_NL, IQ4_XS, MXFP4), a llama2.c checkpoint, or a
                     folder of Hugging Face (config.json, *.safetensors,
                     tokenizer.json)
  --tokenizer FILE   the tokenizer of a llama2.c checkpoint, if it is not beside it
  --name NAME        what clients call the model (default: as the file says)

device:
  --socket PATH      tenant socket of the service (default $CAPGPU_SOCKET, else that
                     of device-manager --dev if it runs, else
                     /run/capgpu/default.sock)
  --device N         which of the tenant's devices, by its index (default 0)
  --context N        most positions of one request, prompt and answer (default: the
                     model's)
  --sequences N      most requests at a time (default %d)
  --positions N      positions in device memory, for all requests together
                     (default: what the session's budget leaves, at most the
                     context of every sequence)
  --batch N          most rows of one pass (default %d); fewer while passes are slow
  --wait DURATION    how long to wait for a service that is not there yet (default
                     10s)

serving:
  --listen ADDRESS   where HTTP is served: 127.0.0.1:8080 (the default), [::1]:PORT,
                     or unix:PATH; any other address needs --token-file. It may be
                     given several times; "none" is nowhere
  --rpc PATH         a UNIX socket on which Cap'n Proto is served
  --token-file FILE  clients on TCP show what is in it: "Authorization: Bearer ..."
                     (one line; no other user may read the file)
  --waiting N        most requests that wait for a place (default 256); others are
                     told to try later
  --patience D       how long requests wait for a device that went (default 10s)
  --drain DURATION   how long requests may take to end after SIGTERM (default 10s)

other:
  --json             the log as JSON, one record a line, on standard error
  --version          print the version and exit
  --help             print this and exit

signals: SIGTERM and SIGINT take no more requests, let those that there are end for
as long as --drain says, and stop; a second one stops at once. After the session was
revoked, SIGHUP opens another.

sockets: UNIX sockets get mode 0660. Whoever can connect is served; a token is asked
for on TCP only.

exit status: 0 after an orderly stop; 1 when something failed; 2 for a wrong command
line, or a model or token file that cannot be used; 3 when the service cannot be
reached; 4 when it refused (quota, policy, no such device).

example: device-manager --dev &
         model-server --model stories260K.gguf
         curl -s http://127.0.0.1:8080/v1/completions -d '{"prompt": "Once"}'
`

// options is the command line, completed.
type options struct {
	model, tokenizer, name string
	socket                 string
	device                 uint
	llama                  llama.Options
	wait, patience, drain  time.Duration
	listen                 []string
	rpc, tokenFile         string
	waiting                int
	json                   bool
}

const defaultListen = "127.0.0.1:8080"

// parseOptions reports done if the command line only asked for information.
func parseOptions(args []string, getenv func(string) string, stdout io.Writer) (o *options, done bool, err error) {
	o = &options{}
	flags := cmdline.New("model-server")
	flags.StringVar(&o.model, "model", "", "")
	flags.StringVar(&o.tokenizer, "tokenizer", "", "")
	flags.StringVar(&o.name, "name", "", "")
	flags.StringVar(&o.socket, "socket", "", "")
	flags.UintVar(&o.device, "device", 0, "")
	flags.IntVar(&o.llama.Context, "context", 0, "")
	flags.IntVar(&o.llama.Sequences, "sequences", 0, "")
	flags.IntVar(&o.llama.Positions, "positions", 0, "")
	flags.IntVar(&o.llama.Batch, "batch", 0, "")
	flags.DurationVar(&o.wait, "wait", 10*time.Second, "")
	flags.DurationVar(&o.patience, "patience", 10*time.Second, "")
	flags.DurationVar(&o.drain, "drain", 10*time.Second, "")
	flags.Func("listen", "", func(text string) error { o.listen = append(o.listen, text); return nil })
	flags.StringVar(&o.rpc, "rpc", "", "")
	flags.StringVar(&o.tokenFile, "token-file", "", "")
	flags.IntVar(&o.waiting, "waiting", 0, "")
	flags.BoolVar(&o.json, "json", false, "")
	help := fmt.Sprintf(usage, llama.DefaultSequences, llama.DefaultBatch)
	if done, err := cmdline.Parse(flags, args, help, stdout); err != nil || done {
		return nil, done, err
	}

	return o, false, o.complete(getenv)
}

// complete checks everything that can be checked without reading anything, and
// fills in the defaults.
func (o *options) complete(getenv func(string) string) error {
	if o.model == "" {
		return errors.New("--model is missing")
	}

	for _, f := range []struct {
		name  string
		value int
	}{{"context", o.llama.Context}, {"sequences", o.llama.Sequences}, {"positions", o.llama.Positions}, {"batch", o.llama.Batch}, {"waiting", o.waiting}} {
		if f.value < 0 {
			return fmt.Errorf("--%s is %d; it is at least 1", f.name, f.value)
		}
	}

	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"wait", o.wait}, {"patience", o.patience}, {"drain", o.drain}} {
		if f.value < 0 {
			return fmt.Errorf("--%s is %v; it is at least 0s", f.name, f.value)
		}
	}

	if o.device > 1<<32-1 {
		return fmt.Errorf("--device is %d; it is an index", o.device)
	}
	if o.patience == 0 {
		o.patience = -1 // do not wait; 0 is the server's default
	}
	if o.socket == "" {
		o.socket = client.DefaultSocket(getenv)
	}
	if len(o.listen) == 0 {
		o.listen = []string{defaultListen}
	}
	if len(o.listen) == 1 && o.listen[0] == "none" {
		o.listen = nil
	}

	for _, a := range o.listen {
		if err := o.checkAddress(a); err != nil {
			return err
		}
	}

	if o.rpc != "" {
		if err := checkPath("--rpc ", o.rpc); err != nil {
			return err
		}
	}

	if len(o.listen) == 0 && o.rpc == "" {
		return errors.New("--listen none leaves nobody to serve without --rpc")
	}

	return nil
}

func (o *options) logger(w io.Writer) *slog.Logger {
	if o.json {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
