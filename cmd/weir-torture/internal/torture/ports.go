package torture

import (
	"fmt"
	"net"
	"os"
)

// ports are the ports of one fleet. Several fleets may be set up at once, so each process of weir-torture has a block
// of ports, below those that the system assigns. It uses each port once.
type ports struct{ next, end int }

const (
	firstPort   = 10_000
	portBlocks  = 100
	blockLength = 100
)

func newPorts() *ports {
	first := firstPort + os.Getpid()%portBlocks*blockLength
	return &ports{next: first, end: first + blockLength}
}

// free returns an address on which nothing listens.
func (p *ports) free() (string, error) {
	err := fmt.Errorf("a fleet's %d ports are used up", blockLength)
	for p.next < p.end {
		addr := fmt.Sprintf("127.0.0.1:%d", p.next)
		p.next++
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
