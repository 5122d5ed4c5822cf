package lease

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
)

// A replica shows that its process is there by a socket whose name only that process can have: the kernel takes it away with
// the process, and closes the connections of its calls at the same moment. A replica that merely cannot be heard keeps its
// own. So who shares a machine and a network namespace with a replica (another one, or its successor, as the supervisor or
// the kubelet starts it in the same pod) can tell the two apart; nobody else can. A pid would not do: it is used again, and a
// container has its own. NATS tells of closed connections only in the system account, and cannot tell either where the network
// is to blame.

// presence is such a socket. It stays until the process ends: calls may outlive the lease that it is named after.
type presence struct {
	host string // this machine since it started, and this network namespace; empty where that cannot be told

	mu      sync.Mutex // guards what follows
	sockets []net.PacketConn
}

// mostSockets bounds the sockets of one process, which begins a lease anew each time it has lost one. Of a session without a
// socket nobody can tell whether its process is gone: its calls are waited for.
const mostSockets = 256

func newPresence() *presence {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, err2 := os.Readlink("/proc/self/ns/net")
	if errors.Join(err, err2) != nil {
		return &presence{}
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %s", boot, space) // a hash never fails
	return &presence{host: fmt.Sprintf("%016x", h.Sum64())}
}

// nameSession names a session so that others can find out whether its process is there, where that is possible.
func (p *presence) nameSession(session string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == "" || len(p.sockets) == mostSockets {
		return session
	}
	named := session + "-" + p.host
	socket, err := net.ListenPacket("unixgram", socketOf(named))
	if err != nil {
		return session
	}
	p.sockets = append(p.sockets, socket)
	return named
}

// Gone reports whether the process of a session is known to have ended, and with it every call that it made. It does not block.
func (r *Registry) Gone(session string) bool { return r.presence.gone(session) }

func (p *presence) gone(session string) bool {
	_, host, named := strings.Cut(session, "-")
	if !named || host != p.host {
		return false
	}
	conn, err := net.Dial("unixgram", socketOf(session))
	if err == nil {
		_ = conn.Close() // it has sent nothing
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// socketOf is an abstract name: no file, and only in one network namespace.
func socketOf(session string) string { return "@weir-" + session }
