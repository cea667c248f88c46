package manager

import (
	"fmt"
	"os"
)

// Descriptions of a policy, for people and programs.

// TenantInfo is a tenant of a policy.
type TenantInfo struct {
	Name           string   `json:"name"`
	AllowedUIDs    []uint32 `json:"allowedUids"`
	AnyUID         bool     `json:"anyUid"`
	SocketUID      int      `json:"socketUid"`
	SocketGID      int      `json:"socketGid"`
	SocketMode     string   `json:"socketMode"`
	Facet          string   `json:"facet"`
	Weight         uint32   `json:"weight"`
	MaxConnections uint64   `json:"maxConnections"`
	Programs       []string `json:"programs"` // empty: all
	Devices        []string `json:"devices"`  // empty: all
}

// FunctionInfo is a function of a policy.
type FunctionInfo struct {
	Name        string `json:"name"`
	Address     string `json:"address,omitempty"` // empty: the fake function
	MemoryBytes uint64 `json:"memoryBytes"`
}

// TenantInfos returns the tenants, in the policy's order.
func (p *Policy) TenantInfos() []TenantInfo {
	all := []TenantInfo{}
	for i := range p.Tenants {
		t := &p.Tenants[i]
		uid, gid := t.socketOwner()
		all = append(all, TenantInfo{
			Name: t.Name, AllowedUIDs: append([]uint32{}, t.AllowedUIDs...), AnyUID: t.AnyUID, SocketUID: uid, SocketGID: gid, SocketMode: fmt.Sprintf("%04o", t.SocketMode),
			Facet: facetNames[t.Facet], Weight: t.Weight, MaxConnections: t.MaxConnections, Programs: append([]string{}, t.Programs...), Devices: append([]string{}, t.Devices...),
		})
	}
	return all
}

// FunctionInfos returns the functions that the policy names, in its order.
func (p *Policy) FunctionInfos() []FunctionInfo {
	all := []FunctionInfo{}
	for _, f := range p.named() {
		all = append(all, FunctionInfo{Name: f.Name, Address: f.Address, MemoryBytes: f.MemoryBytes})
	}
	return all
}

// Notes are warnings about parts of a valid policy that may be mistakes.
func (p *Policy) Notes() (notes []string) {
	if h, err := readMemory(); err == nil && h.huge == 0 {
		for _, f := range p.named() {
			if f.HugePages {
				notes = append(notes, fmt.Sprintf("function %s: no huge pages are set aside (vm.nr_hugepages), so that its buffers are of ordinary pages", f.Name))
			}
		}
	}

	for i := range p.Tenants {
		t := &p.Tenants[i]
		owner, _ := t.socketOwner()
		for _, uid := range t.AllowedUIDs {
			if !t.canOpen(uid) {
				notes = append(notes, fmt.Sprintf("tenant %s: user %d is allowed and cannot open the sockets, which user %d owns with mode %04o", t.Name, uid, owner, t.SocketMode))
			}
		}
	}

	return notes
}

// CheckHost refuses a policy that this host cannot serve: it has too little memory, or a
// driver is missing.
func (p *Policy) CheckHost() error {
	for _, f := range p.Functions {
		if f.Driver == "" {
			continue
		}
		if info, err := os.Stat(f.Driver); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("the driver of function %s, %s, is no program here: install it, or name another one in functions[].driver", f.Name, f.Driver)
		}
	}
	return p.checkHost()
}
