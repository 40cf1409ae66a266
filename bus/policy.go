package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PolicyBucket is the name of the store of policies.
const PolicyBucket = "weir-policy"

// Limits of the store of policies.
const (
	MaxPolicyValue = 120 << 10 // bytes of a value: a message with its headers is below maxMessage
	maxPolicyStore = 64 << 20  // bytes of all
)

// PolicyStore returns the stream of the key-value store of policies. With replicas above 0 it makes the store if there is none:
// controllers do.
func (c *Conn) PolicyStore(ctx context.Context, replicas int) (jetstream.JetStream, jetstream.Stream, error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, nil, err
	}
	const name = "KV_" + PolicyBucket
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && replicas > 0 {
		// As jetstream.CreateKeyValue makes it, but without rollup: a message with that header removes all others, and so an
		// operator could remove the log.
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Description: "policies, their changes, and the inventory", Subjects: []string{"$KV." + PolicyBucket + ".>"},
			MaxMsgsPerSubject: 1, MaxBytes: maxPolicyStore, MaxMsgSize: maxMessage, Storage: jetstream.FileStorage, Replicas: replicas,
			Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true, AllowDirect: true, AllowMsgTTL: true,
		})
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, errors.New("the bus has no store of policies yet: start a controller, which makes it")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the store of policies: %w", err)
	}
	return js, stream, nil
}

// Ready waits until a server is connected. The error names the reason of the last failure.
func (c *Conn) Ready(ctx context.Context) error {
	changed := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(changed)
	for !c.nc.IsConnected() {
		select {
		case <-changed:
		case <-ctx.Done():
			if failed := c.failed.Load(); failed != nil {
				return fmt.Errorf("cannot connect to the bus: %w", *failed)
			}
			return fmt.Errorf("cannot connect to the bus: %w", ctx.Err())
		}
	}
	return nil
}
