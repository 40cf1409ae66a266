package testnet

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// The ports of FreeAddress. They lie below the kernel's range for connections (net.ipv4.ip_local_port_range starts at 32768), so no
// connection of another test gets one of them.
const (
	firstPort = 20000
	ports     = 12000
)

var nextPort atomic.Uint32

// FreeAddress returns an address of 127.0.0.1 for a server that a test starts later, or more than once. No other test gets it until this
// one has ended, not even a test of another process: the name of a socket reserves the port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range ports {
		port := firstPort + (31*uint32(os.Getpid())+nextPort.Add(1))%ports
		reserved, err := net.Listen("unix", fmt.Sprintf("@weir-test-port-%d", port))
		if err != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			_ = reserved.Close()
			continue
		}
		_ = l.Close()
		t.Cleanup(func() { _ = reserved.Close() })
		return address
	}
	t.Fatalf("no free port of %d to %d", firstPort, firstPort+ports-1)
	return ""
}
