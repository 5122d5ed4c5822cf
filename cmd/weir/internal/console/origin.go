package console

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// origins refuses what a page of another site has a browser send here. A page whose own name was made to resolve to this machine (DNS
// rebinding) is of the same origin for its browser: so what a request calls weir is looked at as well.
type origins struct {
	access *Access
	cross  *http.CrossOriginProtection // of what changes something, by Sec-Fetch-Site and Origin
}

func newOrigins(a *Access) origins { return origins{a, http.NewCrossOriginProtection()} }

// refuse is what a request is answered that may not be answered, nil for any other. page says that it is for a page or what belongs to
// one, which other sites may link to.
func (o origins) refuse(r *http.Request, page bool) *Problem {
	if !o.knows(r.Host) {
		return NewProblem(http.StatusMisdirectedRequest, "weir is not called %q here: use localhost or 127.0.0.1, or name it under http.hosts in the configuration", r.Host)
	}
	if err := o.cross.Check(r); err != nil {
		return NewProblem(http.StatusForbidden, "a page of another site may not do this: %s", err)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); !page && site != "" && site != "same-origin" && site != "none" {
		return NewProblem(http.StatusForbidden, "a page of another site may not ask this (Sec-Fetch-Site: %s)", site)
	}
	if origin := r.Header.Get("Origin"); !page && origin != "" && !sameHost(origin, r.Host) {
		return NewProblem(http.StatusForbidden, "a page of another site may not ask this (Origin: %s)", origin)
	}
	return nil
}

// knows reports whether weir is called so. Where only this machine can connect, that is by its loopback names and by those of the
// configuration; elsewhere by those of the configuration and by addresses, which no page can have rebound, and where it names none by any.
func (o origins) knows(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	var named []string
	if h := o.access.configured(); h != nil {
		named = h.Hosts
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "localhost", err == nil && ip.IsLoopback(), slices.Contains(named, host):
		return true
	case o.access.loopback:
		return false
	}
	return err == nil || len(named) == 0
}

// sameHost reports whether an Origin is that of the host that is asked. The scheme is not compared: a proxy may end TLS.
func sameHost(origin, host string) bool {
	_, named, found := strings.Cut(origin, "://")
	return found && strings.EqualFold(named, host)
}
