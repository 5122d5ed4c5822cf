package console

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of wrong tokens from one address: failuresAtOnce at once, then one in each failureEvery. failures remembers at
// most mostAddresses addresses. A further address makes it forget all others.
const (
	failuresAtOnce = 10
	failureEvery   = 6 * time.Second
	mostAddresses  = 4096
)

// failures bounds how many wrong tokens an address may show. It is safe for concurrent use. The zero value is ready.
type failures struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter
}

// take counts a wrong token and reports whether the address is still within its bound.
func (f *failures) take(from netip.Prefix, now time.Time) bool { return f.limiter(from).AllowN(now, 1) }

func (f *failures) limiter(from netip.Prefix) *rate.Limiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.of[from]
	if l == nil {
		if f.of == nil || len(f.of) >= mostAddresses {
			f.of = map[netip.Prefix]*rate.Limiter{}
		}
		l = rate.NewLimiter(rate.Every(failureEvery), failuresAtOnce)
		f.of[from] = l
	}
	return l
}

// remote returns the address from which a request comes. For IPv6 it returns the prefix that a household or machine
// has.
func remote(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

func tooManyFailures() *Problem {
	p := NewProblem(http.StatusTooManyRequests, "too many wrong tokens from this address: try again in %s", failureEvery)
	p.RetryAfter = failureEvery
	return p
}
