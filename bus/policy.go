package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the store of policies.
const (
	MaxPolicyValue = 120 << 10 // bytes of a value: a message with its headers is below maxMessage
	maxPolicyStore = 64 << 20  // bytes of all
)

// PolicyStore returns the key-value store of policies, and its stream. With replicas above 0 it makes the store if there is none:
// controllers do.
func (c *Conn) PolicyStore(ctx context.Context, replicas int) (jetstream.KeyValue, jetstream.Stream, error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, nil, err
	}
	kv, err := js.KeyValue(ctx, policyStore)
	if errors.Is(err, jetstream.ErrBucketNotFound) && replicas > 0 {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: policyStore, Description: "policies, their changes, and the inventory", MaxValueSize: MaxPolicyValue, History: 1, MaxBytes: maxPolicyStore,
			Storage: jetstream.FileStorage, Replicas: replicas,
		})
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil, errors.New("the bus has no store of policies yet: start a controller, which makes it")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the store of policies: %w", err)
	}
	stream, err := js.Stream(ctx, "KV_"+policyStore)
	return kv, stream, err
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
