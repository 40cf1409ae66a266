package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"weir/bus"
	"weir/bus/pki"
)

// operatorFlags are the flags of commands that ask controllers and agents over the bus.
type operatorFlags struct {
	urls []string
	keys string
}

func (f *operatorFlags) add(flags *pflag.FlagSet, urls []string) {
	flags.StringSliceVar(&f.urls, "bus", urls, "`URL` of a server of the bus; repeat it for more")
	flags.StringVar(&f.keys, "keys", "/etc/weir/operator", "`DIRECTORY` that 'weir bus enrol operator/NAME' wrote")
}

// dial connects with an operator's certificate.
func (f *operatorFlags) dial(ctx context.Context) (*bus.Conn, error) {
	files, err := keysIn(f.keys)
	if err != nil {
		return nil, usageError(err)
	}
	c, err := bus.Dial(bus.ClientConfig{URLs: f.urls, Files: files})
	if err != nil {
		return nil, usageError(err)
	}
	if c.Identity().Role != pki.Operator {
		c.Close()
		return nil, usageError(fmt.Errorf("%s is for %s, which may not ask: want operator/NAME", files.Own, c.Identity()))
	}
	within, stop := context.WithTimeout(ctx, policyConnect)
	defer stop()
	if err := c.Ready(within); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

var errNoController = errors.New("no controller sends a heartbeat on this bus: weir controller status, on its machine, says why")

// identities returns the identities of a role.
func identities(role pki.Role, names []string) (out []pki.Identity) {
	for _, n := range names {
		out = append(out, pki.Identity{Role: role, Name: n})
	}
	return out
}
