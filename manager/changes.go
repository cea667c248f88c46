package manager

import (
	"reflect"
	"slices"
	"strings"
)

// Changes is the difference that another policy makes, or would make.
type Changes struct {
	Tenants []TenantChange `json:"tenants"`
	// Restart names the changed parts of the policy that take effect only when the manager is
	// started again.
	Restart []string `json:"restart"`
	// Failed says, for a person, which changes have not taken effect although the policy has.
	Failed []string `json:"failed"`
}

// TenantChange is what changes for one tenant.
type TenantChange struct {
	Tenant string   `json:"tenant"`
	Change string   `json:"change"` // added, removed or changed
	Fields []string `json:"fields"` // the changed ones, as the policy file calls them
	// Sessions and Connections are how many end.
	Sessions    int `json:"sessions"`
	Connections int `json:"connections"`
}

// Any reports whether anything of a tenant changes.
func (c *Changes) Any() bool { return len(c.Tenants) > 0 }

// fieldNames maps fields of Tenant to their names in the policy file, where these differ.
var fieldNames = map[string]string{
	"SocketMode": "socket", "SocketUID": "socket", "SocketGID": "socket", "AllowedUIDs": "allowedUids", "AnyUID": "allowedUids",
}

// fieldsOf are the fields in which two policies of a tenant differ.
func fieldsOf(a, b *Tenant) (names []string) {
	va, vb := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range va.NumField() {
		if reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			continue
		}
		field := va.Type().Field(i).Name
		name, ok := fieldNames[field]
		if !ok {
			name = strings.ToLower(field[:1]) + field[1:]
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// needRestart names the changed parts of the policy that are read only at the start.
func needRestart(a, b *Policy) (parts []string) {
	for _, part := range []struct {
		name string
		same bool
	}{
		{"device", a.Device == b.Device},
		{"functions", reflect.DeepEqual(a.Functions, b.Functions)},
		{"claim", a.ClaimAll == b.ClaimAll},
		{"audit", a.Audit == b.Audit},
		{"sandbox", reflect.DeepEqual(a.Sandbox, b.Sandbox)},
	} {
		if !part.same {
			parts = append(parts, part.name)
		}
	}

	return parts
}
