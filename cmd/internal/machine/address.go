package machine

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddr is an address that nobody listens on. It is none of those that a system hands out by itself, so that it stays free
// while what listens on it is down.
func FreeAddr() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
