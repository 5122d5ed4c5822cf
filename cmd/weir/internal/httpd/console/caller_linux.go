package console

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tellsUsers reports whether the kernel says which user made a connection.
const tellsUsers = true

// sight is what the kernel says about a socket at one moment.
type sight struct {
	uid, inode uint64
}

var (
	errNoSocket = errors.New("no process has such a socket")
	errStrange  = errors.New("the kernel's answer has an unknown form")
)

// userOf returns the user whose process has the client's end of a connection on this machine.
//
// A socket that its process has closed belongs to no user, but kernels report user 0 and inode 0 for it. The kernel
// does not read the two values at the same moment, so userOf asks twice: a socket that has an inode in the second
// answer had an owner at the first.
func userOf(client, server netip.AddrPort) (uid int, known bool) {
	first, err := look(client, server)
	if err != nil {
		return 0, false
	}
	again, err := look(client, server)
	if err != nil || again.inode == 0 || first != again {
		return 0, false
	}
	return int(first.uid), true
}

// look asks the kernel about one socket. If a sandbox forbids the request, or the kernel does not support it, look
// reads the kernel's table of sockets.
func look(client, server netip.AddrPort) (sight, error) {
	seen, err := askKernel(client, server)
	if err != nil {
		seen, err = readTable(client, server)
	}
	return seen, err
}

// Sizes and numbers of sock_diag(7). A request is a netlink header and an inet_diag_req_v2. An answer is a netlink
// header and an inet_diag_msg.
const (
	sockDiagByFamily = 20
	headerBytes      = unix.SizeofNlMsghdr
	requestBytes     = headerBytes + 56
	answerBytes      = headerBytes + 72
	stateListen      = 10
)

// askKernel asks over netlink. The kernel finds one socket in some microseconds. askKernel does not block.
func askKernel(client, server netip.AddrPort) (sight, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return sight{}, fmt.Errorf("netlink: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, socketRequest(client, server), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return sight{}, fmt.Errorf("netlink: %w", err)
	}
	answer := make([]byte, 4<<10)
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel answers during Sendto
	if err != nil {
		return sight{}, fmt.Errorf("netlink: %w", err)
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return sight{}, errStrange
	}
	return readSocket(answer[:n], client, server)
}

func socketRequest(client, server netip.AddrPort) []byte {
	b := make([]byte, 0, requestBytes)
	native := binary.NativeEndian
	b = native.AppendUint32(b, requestBytes)
	b = native.AppendUint16(b, sockDiagByFamily)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence and port: this socket receives only its own answers
	family := byte(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = native.AppendUint32(b, ^uint32(0)) // any state
	b = binary.BigEndian.AppendUint16(b, client.Port())
	b = binary.BigEndian.AppendUint16(b, server.Port())
	for _, ip := range []netip.Addr{client.Addr(), server.Addr()} {
		var wide [16]byte
		copy(wide[:], ip.AsSlice())
		b = append(b, wide[:]...)
	}
	b = native.AppendUint32(b, 0)             // any interface
	return native.AppendUint64(b, ^uint64(0)) // any cookie
}

// readSocket reads the kernel's answer. It refuses an answer about a listening socket, or about another connection.
func readSocket(b []byte, client, server netip.AddrPort) (sight, error) {
	native := binary.NativeEndian
	switch {
	case len(b) < headerBytes:
		return sight{}, errStrange
	case native.Uint16(b[4:]) == unix.NLMSG_ERROR:
		return sight{}, errNoSocket
	case native.Uint16(b[4:]) != sockDiagByFamily || len(b) < answerBytes:
		return sight{}, errStrange
	}
	b = b[headerBytes:]
	family, state := b[0], b[1]
	at := func(port, ip []byte) netip.AddrPort {
		length := 4
		if family == unix.AF_INET6 {
			length = 16
		}
		addr, _ := netip.AddrFromSlice(ip[:length])
		return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(port))
	}
	if state == stateListen || at(b[4:], b[8:]) != client || at(b[6:], b[24:]) != server {
		return sight{}, errNoSocket
	}
	return sight{uid: uint64(native.Uint32(b[64:])), inode: uint64(native.Uint32(b[68:]))}, nil
}

// reading lets only one goroutine at a time read the table. The table has a line for every connection of the machine,
// some megabytes in all.
var reading sync.Mutex

// readTable looks for a socket in /proc/self/net/tcp, and then in the table of IPv6 sockets, which also carry IPv4.
func readTable(client, server netip.AddrPort) (sight, error) {
	reading.Lock()
	defer reading.Unlock()
	if client.Addr().Is4() && server.Addr().Is4() {
		if seen, err := scanTable("/proc/self/net/tcp", tableEnd(client)+" "+tableEnd(server)); !errors.Is(err, errNoSocket) {
			return seen, err
		}
		client = netip.AddrPortFrom(netip.AddrFrom16(client.Addr().As16()), client.Port())
		server = netip.AddrPortFrom(netip.AddrFrom16(server.Addr().As16()), server.Port())
	}
	return scanTable("/proc/self/net/tcp6", tableEnd(client)+" "+tableEnd(server))
}

// tableEnd formats one end of a connection as the table does: the address in 32-bit words of the machine's byte order.
func tableEnd(at netip.AddrPort) string {
	var text strings.Builder
	for word := range slices.Chunk(at.Addr().AsSlice(), 4) {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", text.String(), at.Port())
}

// scanTable reads a table until it finds the socket's line. In a line both addresses follow the line's number.
func scanTable(path, addresses string) (sight, error) {
	file, err := os.Open(path) // #nosec G304 -- the kernel's own
	if err != nil {
		return sight{}, err //nolint:wrapcheck // it names the file
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		_, line, _ := strings.Cut(lines.Text(), ": ")
		if !strings.HasPrefix(line, addresses+" ") {
			continue
		}
		var seen sight
		if f := strings.Fields(line); len(f) > 8 {
			var errUID, errInode error
			seen.uid, errUID = strconv.ParseUint(f[6], 10, 32)
			seen.inode, errInode = strconv.ParseUint(f[8], 10, 64)
			return seen, errors.Join(errUID, errInode)
		}
		return sight{}, errStrange
	}
	return sight{}, errors.Join(lines.Err(), errNoSocket)
}
