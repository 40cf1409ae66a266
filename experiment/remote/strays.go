package remote

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
)

// straysEvery is the time between two looks for strays. No upload takes as long.
const straysEvery = time.Minute

// strays are what nobody will read: chunks of results whose upload did not end, because the job was stopped, or the worker or the bus; and
// results of jobs that are silent. Workers have no right to remove them, and they would fill the store for keepFor.
type strays map[string]bool // subjects of chunks and names of results of the last look

// sweep removes the chunks that had no result in the last look and have none now, and the results of jobs that were silent then and are now.
func (s *strays) sweep(ctx context.Context, js jetstream.JetStream, objects jetstream.ObjectStore, silent func(job string) bool) error {
	const chunks = "$O." + bus.WorkStore + ".C."
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, "OBJ_"+bus.WorkStore)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks+">")) // before the list: a result that ends now is in it
	if err != nil {
		return err
	}
	list, err := objects.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	before := *s
	*s = strays{}
	whole := map[string]bool{}
	for _, o := range list {
		whole[o.NUID] = true
		if name, ok := parseResultName(o.Name); !ok || !silent(name.job) {
			continue
		}
		if !before[o.Name] {
			(*s)[o.Name] = true
		} else if err := objects.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	for subject := range info.State.Subjects {
		switch {
		case whole[strings.TrimPrefix(subject, chunks)]:
		case !before[subject]:
			(*s)[subject] = true
		default:
			if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
				return err
			}
		}
	}
	return nil
}
