package network

import (
	"fmt"
	"net"
	"os"
)

// Ports are the ports of one fleet. Several fleets may be set up at once, so each process of weir-torture has a block
// of ports, below those that the system assigns. It uses each port once.
type Ports struct{ next, end int }

const (
	firstPort   = 10_000
	portBlocks  = 100
	blockLength = 100
)

// NewPorts takes a block of ports.
func NewPorts() *Ports {
	first := firstPort + os.Getpid()%portBlocks*blockLength
	return &Ports{next: first, end: first + blockLength}
}

// Free returns an address on which nothing listens.
func (p *Ports) Free() (string, error) {
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
