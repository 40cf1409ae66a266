package park_test

import (
	"testing"

	"weir/datapath/internal/bpftest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// The verifier's work for a program with the parking in it stays small.
func TestPark_IsCheapToVerify(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 1e9)
	bpftest.CheckVerified(t, "a law that parks", y.objects.ParkAll)
}
