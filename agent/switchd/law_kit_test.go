package switchd

import (
	"fmt"
	"sync"

	"weir/config"
)

// TestLaw is the law that the tests of this package run, TestOther the other one of production, and TestKernel returns the
// programs' configuration for all ports. The external part of the tests sets them, because a law imports this package.
var (
	TestLaw    Law
	TestOther  Law
	TestKernel func(*Common) (any, error)
)

var testAgent = sync.OnceValue(func() *Agent { return New(TestLaw) })

// testKeys is the test law with its default keys.
func testKeys() []LawKeys { return testAgent().chosen(0) }

func testKind() *config.Kind[File] { return testAgent().kind() }

// lawAt returns the test law's parameters at a port with an MTU of 1500 and these settings.
func lawAt(s *PortSettings, port string, own shaper) (Params, error) {
	c := candidate{name: port, mtu: 1500, set: *s}
	if err := c.decide([]Law{TestLaw}, own); err != nil {
		return nil, err
	}
	return c.params[0], nil
}

// kernelText returns the programs' configuration as text.
func kernelText(c *Config) (string, error) {
	k, err := TestKernel(&c.settings()[0].Common)
	return fmt.Sprintf("%+v", k), err
}
