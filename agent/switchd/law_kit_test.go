package switchd

import (
	"fmt"
	"sync"

	"weir/config"
)

// TestLaw is the law that the tests of this package run, and TestKernel returns the programs' configuration for all
// ports. The external part of the tests sets both, because a law imports this package.
var (
	TestLaw    Law
	TestKernel func(*Common) (any, error)
)

var testAgent = sync.OnceValue(func() *Agent { return New(TestLaw) })

func testKind() *config.Kind[File] { return testAgent().kind() }

// lawAt returns the test law's parameters at a port with an MTU of 1500 and these settings.
func lawAt(s *PortSettings, port string, own shaper) (Params, error) {
	c := candidate{name: port, mtu: 1500, set: *s}
	err := c.decide(TestLaw, own)
	return c.params, err
}

// kernelText returns the programs' configuration as text.
func kernelText(c *Config) (string, error) {
	k, err := TestKernel(c.common())
	return fmt.Sprintf("%+v", k), err
}
