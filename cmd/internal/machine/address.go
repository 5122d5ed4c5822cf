package machine

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddr returns a local address on which nothing listens. Its port is outside the range from which the system
// assigns ports, so the address stays free while no listener uses it.
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
