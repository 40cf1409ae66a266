package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"weir/config"
)

// Log returns the last n changes, the newest first.
func (s *Store) Log(ctx context.Context, n int) ([]Change, error) {
	head, _, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	var out []Change
	key := head.Log
	for number := head.Change; number > 0 && len(out) < n; number-- {
		c, err := s.change(ctx, key, number)
		if errors.Is(err, ErrNoKey) { // older than the log
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *c)
		key = c.Before
	}
	return out, nil
}

// change reads a change. It must be by the identity in its key, for which the bus vouches.
func (s *Store) change(ctx context.Context, key string, number uint64) (*Change, error) {
	author, err := logAuthor(key, number)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	b, _, err := s.kv.Get(ctx, changePrefix+key)
	if err != nil {
		return nil, err
	}
	c := &Change{}
	if err := decode(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if c.Number != number || strings.Replace(c.By, "/", ".", 1) != author {
		return nil, fmt.Errorf("%s: %w: it is change %d by %s", key, ErrRecord, c.Number, config.Clip(c.By))
	}
	return c, nil
}

// Version returns the text of a version of a policy, which may be deleted now. version 0 is the newest.
func (s *Store) Version(ctx context.Context, snap *Snapshot, name string, version int) ([]byte, error) {
	newest, at, deleted := 0, ref{}, false
	if p, has := snap.Find(name); has {
		newest, at = p.Version, p.text
		if version == 0 || version == newest {
			return p.Text, nil
		}
	} else {
		for _, d := range snap.deleted {
			if d.Name == name {
				newest, at, deleted = d.Version, d.Text, true
			}
		}
	}
	if newest == 0 || version == 0 {
		return nil, snap.unknown(name, deleted)
	}
	e, err := s.text(ctx, at, name, newest)
	if err != nil {
		return nil, err
	}
	if version == newest {
		return []byte(e.Text), nil
	}
	// Past has one reference for each version before, as far as they are kept.
	if back := newest - version; back >= 1 && back <= len(e.Past) {
		e, err := s.text(ctx, e.Past[back-1], name, version)
		if err == nil {
			return []byte(e.Text), nil
		}
		return nil, err
	}
	return nil, fmt.Errorf("policy %s has no version %d: it has versions %d to %d", name, version, newest-len(e.Past), newest)
}

func (snap *Snapshot) unknown(name string, deleted bool) error {
	if deleted {
		return fmt.Errorf("policy %s is deleted: 'weir policy log' lists its versions, and rollback brings one back", name)
	}
	var names []string
	for _, p := range snap.Policies {
		names = append(names, p.Name)
	}
	return fmt.Errorf("there is no policy %q; %s", config.Clip(name), config.OneOf(name, names))
}

func (s *Store) text(ctx context.Context, at ref, name string, version int) (*packEntry, error) {
	packs, err := s.packs(ctx, map[string]bool{at.Pack: true})
	if err != nil {
		return nil, err
	}
	return packs[at.Pack].entry(at, name, version)
}
