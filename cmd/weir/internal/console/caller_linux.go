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

// tellsUsers is whether the kernel says which user made a connection.
const tellsUsers = true

// sight is what is seen of a socket.
type sight struct {
	uid, inode uint64
}

var (
	errNoSocket = errors.New("no process has such a socket")
	errStrange  = errors.New("the kernel's answer is not understood")
)

// userOf is the user whose process has the client's end of a connection on this machine.
//
// A socket that its process has closed belongs to nobody, and kernels tell it as one of user 0 and of inode 0; the two are not read at one
// moment. So the socket is looked at twice. What has an inode the second time had an owner the first.
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

// look asks the kernel for one socket. Where it may not be asked, as in a sandbox, or does not know how to answer, its table is read.
func look(client, server netip.AddrPort) (sight, error) {
	seen, err := askKernel(client, server)
	if err != nil {
		seen, err = readTable(client, server)
	}
	return seen, err
}

// Of sock_diag(7): what is sent is a netlink header and an inet_diag_req_v2, what comes a header and an inet_diag_msg.
const (
	sockDiagByFamily = 20
	headerBytes      = unix.SizeofNlMsghdr
	requestBytes     = headerBytes + 56
	answerBytes      = headerBytes + 72
	stateListen      = 10
)

// askKernel asks by netlink, which looks one socket up and takes some microseconds. It does not block.
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
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // it was answered while it was sent
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
	b = append(b, make([]byte, 8)...) // sequence and port, for nobody else's answers come here
	family := byte(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = native.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, client.Port())
	b = binary.BigEndian.AppendUint16(b, server.Port())
	for _, ip := range []netip.Addr{client.Addr(), server.Addr()} {
		var wide [16]byte
		copy(wide[:], ip.AsSlice())
		b = append(b, wide[:]...)
	}
	b = native.AppendUint32(b, 0)             // by any interface
	return native.AppendUint64(b, ^uint64(0)) // with any cookie
}

// readSocket reads the answer. The kernel also answers with what listens at the client's address.
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

// reading is held while the table is read: it has a line for every connection of the machine, some megabytes of them.
var reading sync.Mutex

// readTable looks for a socket in /proc/net/tcp, and among those that speak IPv6 as well, to which IPv4 is a part of it.
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

// tableEnd is how the table writes one end of a connection: the address in words of 32 bits, which are the machine's.
func tableEnd(at netip.AddrPort) string {
	var text strings.Builder
	for word := range slices.Chunk(at.Addr().AsSlice(), 4) {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", text.String(), at.Port())
}

// scanTable reads a table up to the line of a socket, whose both ends come behind its number.
func scanTable(path, ends string) (sight, error) {
	file, err := os.Open(path) // #nosec G304 -- the kernel's own
	if err != nil {
		return sight{}, err //nolint:wrapcheck // it names the file
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		_, line, _ := strings.Cut(lines.Text(), ": ")
		if !strings.HasPrefix(line, ends+" ") {
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
