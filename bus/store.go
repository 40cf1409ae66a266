package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus/lease"
	"weir/bus/weirv1"
)

// storeTimeout limits one call to the store. A change of the store's leader takes seconds: then the call fails, and the
// machine of the leases asks again.
const storeTimeout = 500 * time.Millisecond

// leaseRecord is the value of a bucket in the store.
type leaseRecord struct {
	Controller string `json:"controller"`
	Run        uint64 `json:"run"`
	Term       uint64 `json:"term"`
}

// leases reads and writes the owners of buckets.
type leases struct {
	js       jetstream.JetStream
	replicas int
}

func newLeases(c *Conn, replicas int) (*leases, error) {
	js, err := jetstream.New(c.nc, jetstream.WithDefaultTimeout(storeTimeout))
	return &leases{js, replicas}, err
}

// open returns the store, and makes it if there is none.
func (l *leases) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := l.js.KeyValue(ctx, leaseStore)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	return l.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: leaseStore, Description: "which controller holds which bucket of agents", MaxValueSize: 1024, History: 1, MaxBytes: 1 << 20,
		Storage: jetstream.FileStorage, Replicas: max(l.replicas, 1),
	})
}

func (l *leases) read(ctx context.Context, bucket int) (lease.Record, error) {
	kv, err := l.open(ctx)
	if err != nil {
		return lease.Record{}, err
	}
	e, err := kv.Get(ctx, strconv.Itoa(bucket))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return lease.Record{}, nil
	}
	if err != nil {
		return lease.Record{}, err
	}
	return parseRecord(e.Value(), e.Revision()), nil
}

// parseRecord reads a record. An unusable one has a revision only: it is replaced, and the term then comes from the file and the
// agents.
func parseRecord(b []byte, revision uint64) lease.Record {
	var r leaseRecord
	if json.Unmarshal(b, &r) != nil || !weirv1.ValidName(r.Controller) || r.Term > weirv1.MaxTerm {
		return lease.Record{Revision: revision}
	}
	return lease.Record{Holder: lease.Holder{Name: r.Controller, Run: r.Run}, Term: r.Term, Revision: revision}
}

// write replaces the record if it still has the revision. ok is false if it has another one.
func (l *leases) write(ctx context.Context, bucket int, r lease.Record) (revision uint64, ok bool, err error) {
	b, err := json.Marshal(leaseRecord{r.Holder.Name, r.Holder.Run, r.Term})
	if err != nil {
		return 0, false, err
	}
	kv, err := l.open(ctx)
	if err != nil {
		return 0, false, err
	}
	revision, err = kv.Update(ctx, strconv.Itoa(bucket), b, r.Revision)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) { // the latter with replicas
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("write the owner of bucket %d: %w", bucket, err)
	}
	return revision, true, nil
}
