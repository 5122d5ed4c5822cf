package grammar

import (
	"net"
	"net/netip"
	"strconv"
)

// IsLoopback reports whether only this machine can reach host:port. An empty host stands for every interface.
func IsLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && OnThisMachine(host)
}

// OnThisMachine reports whether traffic to host stays on this machine.
func OnThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// IsPort reports whether text is a port from least to 65535, or empty, which means the scheme's default.
func IsPort(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return text == "" || err == nil && n >= least && n <= 65535
}
