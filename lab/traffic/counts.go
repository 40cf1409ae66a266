package traffic

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// counts are figures of TCP at an end, or at both ends of a connection; -1: not known.
type counts struct {
	timeouts   int // RTO events, including the handshake's
	outOfOrder int // segments received before their predecessors
}

var unknownCounts = counts{-1, -1}

// and returns the counts of both ends.
func (c counts) and(other counts) counts {
	return counts{sum(c.timeouts, other.timeouts), sum(c.outOfOrder, other.outOfOrder)}
}

// since returns what was counted after before.
func (c counts) since(before counts) counts {
	return counts{difference(c.timeouts, before.timeouts), difference(c.outOfOrder, before.outOfOrder)}
}

func sum(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

func difference(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a - b
}

// readCounts returns the counts of a TCP socket of the kernel. Timeouts need Linux 6.7, segments out of order 5.4.
func readCounts(fd int) counts {
	var info unix.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	// unix.GetsockoptTCPInfo does not return how much of the structure the kernel filled in.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	out := unknownCounts
	if errno != 0 {
		return out
	}
	if uintptr(size) >= unsafe.Offsetof(info.Rcv_ooopack)+unsafe.Sizeof(info.Rcv_ooopack) {
		out.outOfOrder = int(info.Rcv_ooopack)
	}
	if uintptr(size) >= unsafe.Offsetof(info.Total_rto)+unsafe.Sizeof(info.Total_rto) {
		out.timeouts = int(info.Total_rto)
	}
	return out
}
