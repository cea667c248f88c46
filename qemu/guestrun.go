package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"capgpu/qemu/guest/boot"
)

// GuestRun is one program run in a guest with vfio and edu functions.
type GuestRun struct {
	Program   string            // path of a static Linux program
	Args      []string          // its arguments
	Env       []string          // besides PATH, HOME and CAPGPU_HW, the addresses of the functions
	Files     map[string]string // more files: path in the guest → path here
	Product   bool              // whether the guest has the commands of the product, in /bin
	Functions int               // edu functions
	MemoryMiB int
	Timeout   time.Duration
	Silence   time.Duration // as VM's
	Output    io.Writer     // the program's output
	Again     func()        // as VM's: what Output was given so far counts no more; may be nil
	Console   func(string)  // each line of the guest's console; may be nil
	Logf      func(format string, args ...any)
}

// autopsyLines is how many lines of a guest's console are shown after it has run out of time.
const autopsyLines = 2000

// programPath is where the program lies in the guest.
const programPath = "bin/"

// Run boots the guest, runs the program and returns its exit status: 128 and the
// signal's number if one killed it. An error says that there is no such status.
func (g GuestRun) Run(ctx context.Context) (exit int, err error) {
	var status bytes.Buffer
	wishes := newWishes()
	vm := VM{
		MemoryMiB: g.MemoryMiB, CPUs: 2, Timeout: g.Timeout, Boot: BootTime, Silence: g.Silence,
		Functions: g.Functions, Line: g.Console, Monitor: wishes.run,
		Ports: []Port{
			{Name: boot.OutputPort, To: io.MultiWriter(g.Output, wishes)},
			{Name: boot.StatusPort, To: &status},
		},
		Again: func() {
			status.Reset()
			wishes.forget()
			if g.Again != nil {
				g.Again()
			}
		},
	}
	transcript, err := bootFiles(ctx, vm, g.Logf, func(repo, cache string, k Kernel) ([]File, error) {
		return g.files(ctx, repo, cache, k)
	})
	if errors.Is(err, ErrTimeout) { // the console's end shows what it was doing
		return 0, fmt.Errorf("%w; its console's end:\n%s", err, transcript.tail(autopsyLines))
	}
	if err != nil {
		return 0, err
	}

	var ended boot.Status
	if err := json.Unmarshal(status.Bytes(), &ended); err != nil {
		return 0, fmt.Errorf("the guest did not tell how the program ended; its console's end:\n%s", transcript.tail(20))
	}

	switch {
	case ended.Error != "":
		return 0, fmt.Errorf("in the guest: %s", ended.Error)
	case ended.Signal != 0:
		return 128 + ended.Signal, nil
	}

	return ended.Exit, nil
}

// files are all that the guest has.
func (g GuestRun) files(ctx context.Context, repo, cache string, kernel Kernel) ([]File, error) {
	commands := []GuestCommand{{"./qemu/guest/run", "init"}}
	if g.Product {
		commands = append(commands, productCommands...)
	}

	files, err := GuestFiles(ctx, repo, cache, commands)
	if err != nil {
		return nil, err
	}

	modules, err := kernel.ModuleFiles()
	if err != nil {
		return nil, err
	}

	files = append(files, modules...)
	program := programPath + filepath.Base(g.Program)
	put := map[string]string{program: g.Program}
	for to, from := range g.Files {
		put[strings.TrimPrefix(to, "/")] = from
	}

	for to, from := range put {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: to, Mode: 0o755, Content: content})
	}

	job, err := json.Marshal(boot.Job{Args: append([]string{"/" + program}, g.Args...), Env: g.Env, Functions: g.Functions})
	if err != nil {
		return nil, err
	}

	return append(files, File{Path: boot.JobPath, Mode: 0o644, Content: job}), nil
}
