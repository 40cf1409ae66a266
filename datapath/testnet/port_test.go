package testnet

import (
	"net"
	"testing"
)

// An address is given once, is free, and is given again only after the test that has it.
func TestFreeAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		a := FreeAddress(t)
		if seen[a] {
			t.Fatalf("%s is given twice", a)
		}
		seen[a] = true
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
	var inner string
	t.Run("of a test that ends", func(t *testing.T) { inner = FreeAddress(t) })
	nextPort.Add(ports - 1)
	if again := FreeAddress(t); again != inner {
		t.Errorf("%s, want %s again", again, inner)
	}
	nextPort.Add(ports - 2)
	if a := FreeAddress(t); seen[a] || a == inner {
		t.Errorf("%s belongs to this test already", a)
	}
}
