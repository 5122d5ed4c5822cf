package console

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Wrong tokens that one address may show: ten at once, and one each six seconds. The addresses of so many are remembered; when there
// are more, all are forgotten but the last.
const (
	failuresAtOnce = 10
	failureEvery   = 6 * time.Second
	mostAddresses  = 4096
)

// failures bounds how often tokens may be tried. It is safe for concurrent use; the zero value is ready.
type failures struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter
}

// take notes a try, and reports whether it is one of those that are allowed.
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

// remote is where a request comes from: an address, and of IPv6 what one household or machine is given.
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
