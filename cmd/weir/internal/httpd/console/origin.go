package console

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// origins refuses requests that a page of another site makes a browser send. Such a site can make its own name resolve
// to this machine (DNS rebinding). The browser then takes weir for the page's own origin. So origins also checks the
// host name of a request.
type origins struct {
	access *Access
	cross  *http.CrossOriginProtection // for requests that change something; checks Sec-Fetch-Site and Origin
}

func newOrigins(a *Access) origins { return origins{a, http.NewCrossOriginProtection()} }

// refuse returns the problem if a request is forbidden, else nil. page says that the request is for a page or for a
// part of a page, to which other sites may link.
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

// knows reports whether hostport is a name of this weir. If only this machine can connect, the names are the loopback
// names and the names in the configuration. Otherwise all IP addresses are names too, because no page can rebind an
// address; and if the configuration has no names, every name is known.
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

// sameHost reports whether an Origin has the host of the request. It does not compare the schemes, because a proxy may
// end TLS.
func sameHost(origin, host string) bool {
	_, named, found := strings.Cut(origin, "://")
	return found && strings.EqualFold(named, host)
}
