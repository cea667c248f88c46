package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Cold spawns a trivial Go program, again and again.
type Cold struct{ dir, path string }

// NewCold builds the program, static, with the go command.
func NewCold() (*Cold, error) {
	dir, err := os.MkdirTemp("", "capgpu-cold-")
	if err != nil {
		return nil, err
	}
	c := &Cold{dir: dir, path: filepath.Join(dir, "coldchild")}
	build := exec.Command("go", "build", "-o", c.path, "capgpu/bench/dataplane/peers/coldchild")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the cold child: %w\n%s", err, out), c.Close())
	}
	return c, nil
}

// Spawn is the time from before the exec to the first byte.
func (c *Cold) Spawn() (time.Duration, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()

	cmd := exec.Command(c.path)
	cmd.Stdout = w
	begun := time.Now()
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 0, err
	}

	_, err = r.Read(make([]byte, 1))
	took := time.Since(begun)
	return took, errors.Join(err, cmd.Wait())
}

// Close removes the program.
func (c *Cold) Close() error { return os.RemoveAll(c.dir) }
