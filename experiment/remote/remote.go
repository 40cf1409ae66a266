// Package remote runs experiments on other machines. A submitter puts each run as a task into a work queue of the bus. Workers of
// the same build take tasks, run them, and put the measurements into an object store, from which the submitter takes them.
//
//	message.go  tasks, states of workers, notices of jobs: encode, decode, limits
//	plans.go    from a task to its run
//	worker.go   takes tasks;  attempt.go  runs one, and stores its result
//	client.go   the submitter: its job and queue;  states.go  what workers report, and what is missing
//	results.go  the submitter: results;  check.go  does a result belong to its run;  strays.go  results that are not whole
//
// A run has the same bytes here as on one machine: its worker plans the same file, checks that the key of the run is the same, and
// is of the same build. Only [store.Entry]'s Kernel, Ended and Took are the worker's.
package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
)

const (
	// keepFor limits how long tasks and results of a dead submitter stay on the bus.
	keepFor = 24 * time.Hour
	// silentJob is how long a job can be silent before workers end its runs. A job announces itself each second.
	silentJob = time.Minute
	// ackWait is how long a worker can be silent before another one gets its task.
	ackWait = 6 * time.Second
	// ackEvery is how often a worker reports that it has the task.
	ackEvery = 1500 * time.Millisecond
	// maxTries is how many workers may begin a run. A run that ends its workers must not end all of them.
	maxTries = 4
	// callTimeout limits a request to the bus.
	callTimeout = 5 * time.Second
)

// setUp makes the stream and the object store, if they are missing. Only submitters may.
func setUp(ctx context.Context, js jetstream.JetStream) (jetstream.ObjectStore, error) {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: bus.WorkStream, Description: "runs of experiments that wait for workers", Subjects: []string{bus.WorkSubjects}, Retention: jetstream.WorkQueuePolicy,
		MaxAge: keepFor, MaxBytes: bus.MaxTasks, MaxMsgSize: bus.MaxMessage, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("make the work queue on the bus: %w", err)
	}
	objects, err := js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: bus.WorkStore, Description: "results of runs", TTL: keepFor, MaxBytes: bus.MaxResults, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("make the store of results on the bus: %w", err)
	}
	return objects, nil
}

// setUpConsumer makes the queue of a build's tasks, if it is missing.
func setUpConsumer(ctx context.Context, js jetstream.JetStream, world, code string) error {
	_, err := js.CreateOrUpdateConsumer(ctx, bus.WorkStream, jetstream.ConsumerConfig{
		Durable: bus.WorkConsumer(world, code), FilterSubject: bus.WorkSubject(world, code, "*"), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxDeliver: -1, MaxAckPending: 10_000, InactiveThreshold: keepFor,
	})
	if err != nil {
		return fmt.Errorf("make the queue of this build on the bus: %w", err)
	}
	return nil
}

// pause waits, and reports false if the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// errNoServer reports that no server of the bus answers.
var errNoServer = errors.New("no server of the bus answers")
