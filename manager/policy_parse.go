package manager

import (
	"fmt"
	"math"
	"math/bits"
	"os"
	"os/user"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"capgpu/ledger"
)

// ParsePolicy reads a policy file: JSON in UTF-8, without unknown or repeated names. An error
// names line and column and says what to do.
func ParsePolicy(data []byte) (*Policy, error) {
	p, err := parsePolicy(data)
	if err != nil {
		return nil, position(data, err)
	}
	return p, nil
}

func parsePolicy(data []byte) (*Policy, error) {
	root, err := parseNodes(data)
	if err != nil {
		return nil, err
	}

	p := &Policy{Device: defaultDevicePolicy(), Audit: defaultAuditPolicy(), Sandbox: defaultSandboxPolicy()}
	var functions, tenants *node // functions are read last: they inherit from device
	err = root.fields("the policy", fields{
		"device":    func(n *node) error { return p.Device.parse(n) },
		"functions": func(n *node) error { functions = n; return nil },
		"claim":     func(n *node) error { return p.parseClaim(n) },
		"audit":     func(n *node) error { return p.Audit.parse(n) },
		"sandbox":   func(n *node) error { return p.Sandbox.parse(n) },
		"tenants":   func(n *node) error { tenants = n; return p.parseTenants(n) },
	})
	if err == nil && functions != nil {
		err = p.parseFunctions(functions)
	}
	if err == nil {
		err = p.checkDevices(root.off)
	}
	if err == nil && tenants != nil {
		err = p.checkPrograms(tenants)
	}
	if err != nil {
		return nil, err
	}
	if len(p.Tenants) == 0 {
		return nil, at(root.off, `no tenant may connect: add "tenants": [{"name": "default", "allowedUids": "any"}]`)
	}

	return p, nil
}

// fields maps the names that an object may have to their readers.
type fields map[string]func(*node) error

func (n *node) fields(what string, known fields) error {
	if n.kind != objectNode {
		return at(n.off, "%s must be an object, {…}, not %s", what, nodeKinds[n.kind])
	}

	for _, m := range n.object {
		read, ok := known[m.name]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			sort.Strings(names)
			return at(m.off, "%s has no field %q; remove it or use one of: %s", what, m.name, strings.Join(names, ", "))
		}
		if err := read(m.value); err != nil {
			return err
		}
	}

	return nil
}

func (d *DevicePolicy) parse(n *node) error {
	return n.fields("device", fields{
		"memory":      n.into(&d.MemoryBytes, "device.memory", size),
		"iovaEntries": n.into(&d.IOVAEntries, "device.iovaEntries", count),
		"faults":      func(n *node) error { return text(n, "device.faults", &d.Faults) },
		"engine": func(n *node) error {
			if err := text(n, "device.engine", &d.Engine); err != nil {
				return err
			}
			if d.Engine != "auto" && d.Engine != "lane" {
				return at(n.off, `device.engine must be "auto" or "lane"`)
			}
			return nil
		},
		"subgroup": func(n *node) (err error) {
			d.Subgroup, err = count(n, "device.subgroup")
			if err == nil && !slices.Contains([]uint64{8, 16, 32, 64}, d.Subgroup) {
				err = at(n.off, "device.subgroup must be 8, 16, 32 or 64")
			}
			return err
		},
		"discrete":       func(n *node) error { return boolean(n, "device.discrete", &d.Discrete) },
		"hugePages":      func(n *node) error { return boolean(n, "device.hugePages", &d.HugePages) },
		"interruptLimit": n.into(&d.InterruptLimit, "device.interruptLimit", interrupts),
		"respawn":        func(n *node) error { return d.Respawn.parse(n, "device.respawn") },
	})
}

func (r *RespawnPolicy) parse(n *node, what string) error {
	err := n.fields(what, fields{
		"budget": func(n *node) error {
			v, err := bounded(n, what+".budget", 0, 1_000_000)
			r.Budget = int(v)
			return err
		},
		"window":     func(n *node) error { return duration(n, what+".window", &r.Window) },
		"firstDelay": func(n *node) error { return duration(n, what+".firstDelay", &r.FirstDelay) },
		"maxDelay":   func(n *node) error { return duration(n, what+".maxDelay", &r.MaxDelay) },
		"standby":    func(n *node) error { return boolean(n, what+".standby", &r.Standby) },
	})
	if err != nil {
		return err
	}
	if r.FirstDelay > r.MaxDelay {
		return at(n.off, "%s.firstDelay (%v) is longer than maxDelay (%v); make it shorter", what, r.FirstDelay, r.MaxDelay)
	}

	return nil
}

func (p *Policy) parseTenants(n *node) error {
	if n.kind != arrayNode {
		return at(n.off, "tenants must be a list, [{…}], not %s", nodeKinds[n.kind])
	}
	if len(n.array) > maxTenants {
		return at(n.off, "there are %d tenants; at most %d are served", len(n.array), maxTenants)
	}

	for i, e := range n.array {
		t := defaultTenant()
		if err := t.parse(e, fmt.Sprintf("tenants[%d]", i)); err != nil {
			return err
		}
		if p.Tenant(t.Name) != nil {
			return at(e.off, "tenant %q is here twice; give one another name", t.Name)
		}
		p.Tenants = append(p.Tenants, t)
	}

	return nil
}

func (t *Tenant) parse(n *node, what string) error {
	err := n.fields(what, fields{
		"name":           func(n *node) error { return t.parseName(n, what) },
		"socket":         func(n *node) error { return t.parseSocket(n, what+".socket") },
		"allowedUids":    func(n *node) error { return t.parseUIDs(n, what+".allowedUids") },
		"facet":          func(n *node) error { return t.parseFacet(n, what+".facet") },
		"limits":         func(n *node) error { return parseLimits(n, what+".limits", &t.Limits) },
		"programs":       func(n *node) error { return t.parsePrograms(n, what+".programs") },
		"devices":        func(n *node) error { return t.parseDevices(n, what+".devices") },
		"maxDeadline":    func(n *node) error { return duration(n, what+".maxDeadline", &t.MaxDeadline) },
		"maxConnections": n.into(&t.MaxConnections, what+".maxConnections", connections),
		"idleTimeout":    func(n *node) error { return duration(n, what+".idleTimeout", &t.IdleTimeout) },
		"gateRate":       n.into(&t.GateRate, what+".gateRate", gateRates),
		"weight": func(n *node) error {
			v, err := bounded(n, what+".weight", 1, 1000)
			t.Weight = uint32(v)
			return err
		},
	})
	switch {
	case err != nil:
		return err
	case t.Name == "":
		return at(n.off, `%s has no name; add "name": "…"`, what)
	case !t.AnyUID && len(t.AllowedUIDs) == 0:
		return at(n.off, `tenant %q admits nobody; add "allowedUids": [1000], or "any" to leave it to the socket's mode`, t.Name)
	}

	return t.checkSocket(n)
}

func (t *Tenant) parseName(n *node, what string) error {
	if err := text(n, what+".name", &t.Name); err != nil {
		return err
	}
	if !tenantName.MatchString(t.Name) {
		return at(n.off, "%s.name %q becomes a file name: use 1 to 32 of a-z, 0-9, - and _, starting with a letter or digit", what, t.Name)
	}
	return nil
}

func (t *Tenant) parseSocket(n *node, what string) error {
	return n.fields(what, fields{
		"mode": func(n *node) error {
			var s string
			if err := text(n, what+".mode", &s); err != nil {
				return err
			}
			mode, err := strconv.ParseUint(s, 8, 16)
			if err != nil || mode > 0o777 {
				return at(n.off, `%s.mode must be an octal mode in quotes, such as "0660"`, what)
			}
			t.SocketMode = os.FileMode(mode)
			return nil
		},
		"owner": func(n *node) (err error) {
			t.SocketUID, err = hostID(n, what+".owner", func(name string) (string, error) {
				u, err := user.Lookup(name)
				if err != nil {
					return "", err
				}
				return u.Uid, nil
			})
			return err
		},
		"group": func(n *node) (err error) {
			t.SocketGID, err = hostID(n, what+".group", func(name string) (string, error) {
				g, err := user.LookupGroup(name)
				if err != nil {
					return "", err
				}
				return g.Gid, nil
			})
			return err
		},
	})
}

// hostID reads a number, or a name that this host knows.
func hostID(n *node, what string, lookup func(string) (string, error)) (int, error) {
	if n.kind == numberNode {
		v, err := bounded(n, what, 0, math.MaxUint32-1)
		return int(v), err
	}
	var name string
	if err := text(n, what, &name); err != nil {
		return -1, err
	}
	id, err := lookup(name)
	if err != nil {
		return -1, at(n.off, "%s: this host does not know %q; create it or use a number", what, name)
	}
	return strconv.Atoi(id)
}

func (t *Tenant) parseUIDs(n *node, what string) error {
	if n.kind == textNode && n.text == "any" {
		t.AnyUID = true
		return nil
	}

	if n.kind != arrayNode {
		return at(n.off, `%s must be a list of user ids, [1000], or "any"`, what)
	}

	for i, e := range n.array {
		v, err := bounded(e, fmt.Sprintf("%s[%d]", what, i), 0, math.MaxUint32-1)
		if err != nil {
			return err
		}
		t.AllowedUIDs = append(t.AllowedUIDs, uint32(v))
	}

	return nil
}

func (t *Tenant) parseFacet(n *node, what string) error {
	i := slices.Index(facetNames[:], n.text)
	if n.kind != textNode || i < 0 {
		return at(n.off, `%s must be "memory", "program" or "full"`, what)
	}
	t.Facet = uint32(i)
	return nil
}

// limitable are the classes that the core charges to tenants. The others belong to the device
// or have a field of their own.
var limitable = []ledger.Class{ledger.DeviceMemory, ledger.HostMemory, ledger.Sessions, ledger.Buffers, ledger.Fences,
	ledger.Programs, ledger.ProgramBytes, ledger.QueueSlots, ledger.InFlight, ledger.Descriptors, ledger.DeviceTime}

func parseLimits(n *node, what string, l *ledger.Limits) error {
	known := make(fields, len(limitable))
	for _, class := range limitable {
		name := what + "." + class.String()
		switch class {
		case ledger.DeviceMemory, ledger.HostMemory, ledger.ProgramBytes:
			known[class.String()] = n.into(&l[class], name, size)
		case ledger.DeviceTime:
			known[class.String()] = func(n *node) error {
				var d time.Duration
				if err := duration(n, name, &d); err != nil {
					return err
				}
				l[class] = uint64(d)
				return nil
			}
		default:
			known[class.String()] = n.into(&l[class], name, count)
		}
	}

	return n.fields(what, known)
}

// into returns a function that reads a number with one of the readers below.
func (*node) into(v *uint64, what string, read func(*node, string) (uint64, error)) func(*node) error {
	return func(n *node) (err error) {
		*v, err = read(n, what)
		return err
	}
}

func text(n *node, what string, s *string) error {
	if n.kind != textNode {
		return at(n.off, "%s must be a string, not %s", what, nodeKinds[n.kind])
	}
	if strings.ContainsRune(n.text, 0) {
		return at(n.off, "%s must not contain a zero byte", what)
	}
	*s = n.text
	return nil
}

func bounded(n *node, what string, least, most uint64) (uint64, error) {
	v, err := strconv.ParseUint(n.number.String(), 10, 64)
	if n.kind != numberNode || err != nil || v < least || v > most {
		return 0, at(n.off, "%s must be a whole number from %d to %d", what, least, most)
	}
	return v, nil
}

func count(n *node, what string) (uint64, error)       { return bounded(n, what, 0, math.MaxInt64) }
func connections(n *node, what string) (uint64, error) { return bounded(n, what, 1, 4096) }

var units = map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

// size reads bytes: a number, or a number with a unit.
func size(n *node, what string) (uint64, error) {
	if n.kind == numberNode {
		return count(n, what)
	}
	if n.kind == textNode && len(n.text) > 3 {
		shift, ok := units[n.text[len(n.text)-3:]]
		v, err := strconv.ParseUint(strings.TrimSpace(n.text[:len(n.text)-3]), 10, 64)
		if ok && err == nil && bits.Len64(v)+int(shift) <= 63 {
			return v << shift, nil
		}
	}
	return 0, at(n.off, `%s must be a number of bytes, or a string such as "256MiB" (KiB, MiB, GiB, TiB)`, what)
}

func duration(n *node, what string, d *time.Duration) error {
	v, err := time.ParseDuration(n.text)
	if n.kind != textNode || err != nil || v <= 0 {
		return at(n.off, `%s must be a time such as "500ms" or "10s", more than 0`, what)
	}
	*d = v
	return nil
}
