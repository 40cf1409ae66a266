package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// batchBytes is the size of one send: well below the default send buffer of a socket.
const batchBytes = 32 << 10

// sendBatch sends many requests with few system calls, in the calling thread's namespace. Only the last request of
// a send is acknowledged, but the kernel reports every failure. A lab's neighbour entries grow with the square of
// its guests.
func sendBatch(requests []*nl.NetlinkRequest) error {
	if len(requests) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// An error quotes the request only in part, so that many errors fit into the buffer.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return err
	}
	var out []byte
	for i, r := range requests {
		last := len(out) > batchBytes || i == len(requests)-1
		r.Flags &^= unix.NLM_F_ACK
		if last {
			r.Flags |= unix.NLM_F_ACK
		}
		out = append(out, r.Serialize()...) //nolint:misspell // the library's name
		if !last {
			continue
		}
		if err := unix.Sendto(fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		if err := awaitAck(fd, r.Seq); err != nil {
			return err
		}
		out = out[:0]
	}
	return nil
}

// awaitAck reads answers up to the acknowledgement of seq, or the first error.
func awaitAck(fd int, seq uint32) error {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size := nl.NativeEndian().Uint32(rest)
			if size < unix.SizeofNlMsghdr+4 || int(size) > len(rest) {
				return fmt.Errorf("an answer of %d bytes in a message of %d bytes", size, len(rest))
			}
			if nl.NativeEndian().Uint16(rest[4:]) == unix.NLMSG_ERROR {
				if errno := int32(nl.NativeEndian().Uint32(rest[unix.SizeofNlMsghdr:])); errno != 0 {
					return unix.Errno(-errno)
				}
				if nl.NativeEndian().Uint32(rest[8:]) == seq {
					return nil
				}
			}
			rest = rest[min((int(size)+3)&^3, len(rest)):]
		}
	}
}

// neighbour returns a request for one entry of a neighbour table (ip set) or of a bridge's table.
func neighbour(family uint8, ifindex int, state uint16, flags uint8, ip net.IP, mac net.HardwareAddr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	req.AddData(&netlink.Ndmsg{Family: family, Index: uint32(ifindex), State: state, Flags: flags})
	if ip != nil {
		req.AddData(nl.NewRtAttr(netlink.NDA_DST, ip))
	}
	req.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, mac))
	return req
}
