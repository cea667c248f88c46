package opencl

import (
	"bufio"
	"encoding/gob"
	"os"
)

// Main does the jobs of a parent and does not return, if Open started this process;
// otherwise it does nothing.
func Main() {
	if os.Getenv(childEnv) == "" {
		return
	}
	out := os.NewFile(3, "replies")
	if out == nil || serve(bufio.NewReader(os.Stdin), out) != nil {
		os.Exit(1)
	}
	os.Exit(0) // without the driver's own clean-up: nothing here outlives us
}

func serve(in *bufio.Reader, out *os.File) error {
	replies := gob.NewEncoder(out)
	d, err := openDevice()
	if err != nil {
		return replies.Encode(&reply{Err: err.Error()})
	}
	if err := replies.Encode(&reply{Device: d.name}); err != nil {
		return err
	}

	jobs := gob.NewDecoder(in)
	for {
		var j Job
		if err := jobs.Decode(&j); err != nil {
			return nil // the parent is done
		}
		var r reply
		if r.Bindings, err = d.run(&j); err != nil {
			r.Err = err.Error()
		}
		if err := replies.Encode(&r); err != nil {
			return err
		}
	}
}
