package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
)

// Errors of a KV.
var (
	ErrNoKey   = errors.New("there is no such key")
	ErrChanged = errors.New("the key has another revision")
)

// KV is a key-value store that replaces a value only if nobody else did since it was read.
type KV interface {
	// Get returns a value and its revision, or ErrNoKey.
	Get(ctx context.Context, key string) ([]byte, uint64, error)
	// Update replaces the value that has the revision; 0: there is none yet. Otherwise it returns ErrChanged.
	Update(ctx context.Context, key string, value []byte, revision uint64) error
	// Put replaces any value.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a key. A missing key is no error.
	Delete(ctx context.Context, key string) error
	// Keys lists the keys that begin with prefix, which ends with a dot. Some of them may be deleted already.
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Bus returns the KV of a bus. With replicas above 0 it makes the store if there is none: controllers do.
func Bus(ctx context.Context, c *bus.Conn, replicas int) (KV, error) {
	js, stream, err := c.PolicyStore(ctx, replicas)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, bus.PolicyBucket)
	return &busKV{js, kv, stream}, err
}

type busKV struct {
	js     jetstream.JetStream
	kv     jetstream.KeyValue
	stream jetstream.Stream
}

// subjects is the prefix of the subjects of keys.
const subjects = "$KV." + bus.PolicyBucket + "."

func (b *busKV) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := b.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) { // also of a deleted one
		return nil, 0, fmt.Errorf("%s: %w", key, ErrNoKey)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s of the store of policies: %w", key, err)
	}
	return e.Value(), e.Revision(), nil
}

func (b *busKV) Update(ctx context.Context, key string, value []byte, revision uint64) error {
	_, err := b.kv.Update(ctx, key, value, revision)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) { // the latter with replicas
		return fmt.Errorf("%s: %w", key, ErrChanged)
	}
	return writeError(key, err)
}

func (b *busKV) Put(ctx context.Context, key string, value []byte) error {
	_, err := b.kv.Put(ctx, key, value)
	return writeError(key, err)
}

func (b *busKV) Delete(ctx context.Context, key string) error {
	const marker = time.Hour // the marker that replaces the value is kept for this time
	m := &nats.Msg{Subject: subjects + key, Header: nats.Header{"KV-Operation": {"DEL"}}}
	_, err := b.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(marker))
	return writeError(key, err)
}

func writeError(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write %s of the store of policies: %w", key, err)
}

func (b *busKV) Keys(ctx context.Context, prefix string) ([]string, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(subjects+prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("list %s of the store of policies: %w", prefix, err)
	}
	var out []string
	for subject := range info.State.Subjects {
		out = append(out, strings.TrimPrefix(subject, subjects))
	}
	return out, nil
}

// Watch calls changed each time somebody has changed the policies, and once at the beginning, until ctx ends. Only
// controllers may watch. An error ends it: call it again.
func Watch(ctx context.Context, kv KV, changed func()) error {
	b, is := kv.(*busKV)
	if !is {
		return errors.New("only the store of a bus can be watched")
	}
	w, err := b.kv.Watch(ctx, headKey)
	if err != nil {
		return fmt.Errorf("watch the store of policies: %w", err)
	}
	defer func() { _ = w.Stop() }() // the server forgets it in any case
	changed()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.Updates():
			switch {
			case !open:
				return errors.New("the bus ended the watch of the store of policies")
			case e == nil: // the values of now were sent
				first = false
			case !first:
				changed()
			}
		}
	}
}
