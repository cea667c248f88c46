package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/manager"
)

// checked is the report about a policy.
type checked struct {
	Policy string `json:"policy"` // the file; empty: developer mode's own
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"` // why it is not valid
	// Notes are settings that an operator may not have meant.
	Notes     []string               `json:"notes"`
	Tenants   []manager.TenantInfo   `json:"tenants"`
	Functions []manager.FunctionInfo `json:"functions"`
	// Running: a device-manager runs in the run directory. Unknown is the reason
	// that it could not be asked, and Changes are the effects of a reload.
	Running bool             `json:"running"`
	Unknown string           `json:"unknown,omitempty"`
	Changes *manager.Changes `json:"changes,omitempty"`
}

// askTimeout bounds the wait for a running device-manager's answer about a reload.
const askTimeout = 10 * time.Second

// errRefused: the policy is not valid, and the report says so.
var errRefused = errors.New("the policy would be refused")

// checkPolicy reads the policy as a start would and reports its contents. If a
// device-manager runs in the run directory, it also reports the effects of a
// reload.
func checkPolicy(o *options, w io.Writer, asJSON bool) error {
	c := checked{Policy: o.policyPath, Notes: []string{}, Tenants: []manager.TenantInfo{}, Functions: []manager.FunctionInfo{}}
	err := c.read(o)
	c.OK = err == nil
	if err != nil {
		c.Error = err.Error()
	}

	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(c) // plain values; the reader may be gone
	} else if err == nil {
		c.print(w, o)
	}

	if err != nil && asJSON {
		return errRefused
	}

	return err
}

func (c *checked) read(o *options) error {
	policy, _, err := o.good()
	if err != nil {
		return err
	}
	c.Tenants, c.Functions, c.Notes = policy.TenantInfos(), policy.FunctionInfos(), append(c.Notes, policy.Notes()...)
	if o.policyPath == "" {
		return nil
	}
	return c.ask(o)
}

// ask asks the running device-manager, if there is one.
func (c *checked) ask(o *options) error {
	text, err := os.ReadFile(o.policyPath)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	admin, err := client.DialAdmin(ctx, filepath.Join(o.runDir, manager.AdminSocketName))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil
	case err != nil:
		c.Running, c.Unknown = true, err.Error()
		return nil
	}

	defer admin.Close()
	c.Running = true
	answer, err := admin.Plan(ctx, text)
	switch {
	case errors.Is(err, gpuerr.Unimplemented):
		c.Unknown = "it is of an earlier version, which cannot be asked"
		return nil
	case errors.Is(err, gpuerr.Invalid):
		return fmt.Errorf("the device-manager that runs in %s would refuse it: %s", o.runDir, gpuerr.From(err).Msg)
	case err != nil:
		return fmt.Errorf("ask the device-manager that runs in %s: %w", o.runDir, err)
	}

	c.Changes = &manager.Changes{}
	if err := json.Unmarshal(answer, c.Changes); err != nil {
		return fmt.Errorf("the answer of the device-manager that runs in %s is not as expected: %w", o.runDir, err)
	}

	return nil
}

func (c *checked) print(w io.Writer, o *options) {
	file := c.Policy
	if file == "" {
		file = "developer mode's own"
	}

	fmt.Fprintf(w, "policy %s is good\n", file)
	for _, f := range c.Functions {
		address := f.Address
		if address == "" {
			address = "the fake function"
		}
		fmt.Fprintf(w, "  function %s: %s, %d MiB of memory\n", f.Name, address, f.MemoryBytes>>20)
	}

	for _, t := range c.Tenants {
		users := "any user that its sockets let in"
		if !t.AnyUID {
			var uids []string
			for _, uid := range t.AllowedUIDs {
				uids = append(uids, fmt.Sprint(uid))
			}
			users = "user " + strings.Join(uids, ", ")
		}
		fmt.Fprintf(w, "  tenant %s: %s; sockets of %d:%d, mode %s; facet %s, weight %d\n", t.Name, users, t.SocketUID, t.SocketGID, t.SocketMode, t.Facet, t.Weight)
	}

	for _, note := range c.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}

	switch {
	case !c.Running:
		fmt.Fprintf(w, "no device-manager runs in %s\n", o.runDir)
	case c.Unknown != "":
		fmt.Fprintf(w, "what a reload would change of the device-manager that runs in %s is not known: %s\n", o.runDir, c.Unknown)
	case c.Changes != nil:
		lines := inWords(*c.Changes, would)
		if len(lines) == 0 {
			lines = []string{"nothing would change"}
		}
		fmt.Fprintf(w, "a reload of the device-manager that runs in %s:\n  %s\n", o.runDir, strings.Join(lines, "\n  "))
	}
}
