package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"capgpu/gpuerr"
)

// guard checks which requests are allowed.
type guard struct {
	open bool // no token
	want [sha256.Size]byte
	csrf *http.CrossOriginProtection
}

func newGuard(token string) guard {
	return guard{open: token == "", want: sha256.Sum256([]byte(token)), csrf: http.NewCrossOriginProtection()}
}

// token compares digests, so that the duration of the comparison reveals neither
// the token nor its length.
func (g *guard) token(r *http.Request) error {
	if g.open {
		return nil
	}
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	have := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	if subtle.ConstantTimeCompare(have[:], g.want[:]) == 1 && strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	if shown == "" {
		return newProblem(http.StatusUnauthorized, typeToken, gpuerr.Denied, "a token is needed: Authorization: Bearer …")
	}
	return newProblem(http.StatusUnauthorized, typeToken, gpuerr.Denied, "the token is wrong")
}

// origin refuses requests from pages of another origin. Without a token, the host
// must be a loopback name as well: a page with a name that resolves to this machine
// (DNS rebinding) is of the same origin, but sends its own name as the host. A UNIX
// socket is not reachable that way.
func (g *guard) origin(r *http.Request) error {
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); g.open && !isUnix(local) && !loopback(r.Host) {
		return newProblem(http.StatusForbidden, typeDenied, gpuerr.Denied, "without a token this server answers to loopback names only, not to %q", clip(r.Host))
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return newProblem(http.StatusForbidden, typeDenied, gpuerr.Denied, "requests from pages of another origin are refused")
		}
	}
	if err := g.csrf.Check(r); err != nil {
		return newProblem(http.StatusForbidden, typeDenied, gpuerr.Denied, "requests from pages of another origin are refused")
	}
	return nil
}

func isUnix(a net.Addr) bool { return a != nil && a.Network() == "unix" }

// loopback reports whether a Host header is a loopback name.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}
