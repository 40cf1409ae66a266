package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/policy"
)

// PutNode stores what an agent reported. Controllers may.
func (s *Store) PutNode(ctx context.Context, n *policy.Node) error {
	value, err := encode(&nodeRecord{*n})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return s.kv.Put(ctx, inventoryPrefix+n.Name, value)
}

// DeleteNode removes a node. Controllers may.
func (s *Store) DeleteNode(ctx context.Context, name string) error {
	if !policy.ValidNode(name) {
		return fmt.Errorf("%.80q is not the name of a node", name)
	}
	return s.kv.Delete(ctx, inventoryPrefix+name)
}

// Inventory returns the nodes, sorted by name. Problems lists records that cannot be read: they are left out.
func (s *Store) Inventory(ctx context.Context) (nodes []policy.Node, problems []error, err error) {
	keys, err := s.kv.Keys(ctx, inventoryPrefix)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) > policy.MaxNodes {
		return nil, nil, fmt.Errorf("the inventory has %d nodes, want at most %d", len(keys), policy.MaxNodes)
	}
	slices.Sort(keys)
	records, faults := make([]*nodeRecord, len(keys)), make([]error, len(keys))
	err = each(len(keys), func(i int) error {
		b, _, err := s.kv.Get(ctx, keys[i])
		if errors.Is(err, ErrNoKey) {
			return nil
		}
		if err != nil {
			return err
		}
		r := &nodeRecord{}
		if err = decode(b, r); err == nil && inventoryPrefix+r.Name != keys[i] {
			err = fmt.Errorf("%w: it is for the node %s", ErrRecord, r.Name)
		}
		if err != nil {
			faults[i] = fmt.Errorf("%s: %w", keys[i], err)
			return nil
		}
		records[i] = r
		return nil
	})
	for i := range keys {
		if records[i] != nil {
			nodes = append(nodes, records[i].Node)
		}
		if faults[i] != nil {
			problems = append(problems, faults[i])
		}
	}
	return nodes, problems, err
}

// Prune removes what nothing refers to any more: texts of versions that are too old, and those of changes that were not
// completed; and changes beyond MaxChanges. Controllers may, while nobody changes policies: seen is the result of a call at
// least some minutes ago, and only keys that it has too are removed. It returns those that can be removed next time.
func (s *Store) Prune(ctx context.Context, seen map[string]bool) (next map[string]bool, err error) {
	// Keys first: what a change stores after this is not looked at.
	texts, err := s.kv.Keys(ctx, textPrefix)
	if err != nil {
		return nil, err
	}
	changes, err := s.kv.Keys(ctx, changePrefix)
	if err != nil {
		return nil, err
	}
	used, newest, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	next = map[string]bool{}
	for _, key := range slices.Concat(texts, changes) {
		keep := used[key]
		if text, is := strings.CutPrefix(key, changePrefix); is {
			number, _, _ := strings.Cut(text, "-")
			n, err := strconv.ParseUint(number, 10, 64)
			keep = err == nil && n+MaxChanges > newest
		}
		switch {
		case keep:
		case !seen[key]:
			next[key] = true
		default:
			if err := s.kv.Delete(ctx, key); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

// used returns the keys of all texts that the head refers to, also those of earlier versions, and the number of the last change.
func (s *Store) used(ctx context.Context) (map[string]bool, uint64, error) {
	head, _, err := s.head(ctx)
	if err != nil {
		return nil, 0, err
	}
	need, out := map[string]bool{}, map[string]bool{}
	for _, e := range head.Policies {
		need[e.Text.Pack] = true
	}
	packs, err := s.packs(ctx, need)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range head.Policies {
		out[textPrefix+e.Text.Pack] = true
		text, err := packs[e.Text.Pack].entry(e.Text, e.Name, e.Version)
		if err != nil { // it may refer to others: then nothing can be removed
			return nil, 0, err
		}
		for _, r := range text.Past {
			out[textPrefix+r.Pack] = true
		}
	}
	return out, head.Change, nil
}

// PutLive stores what a controller enforces. Controllers may.
func (s *Store) PutLive(ctx context.Context, l *policy.Live) error {
	value, err := encode(&liveRecord{*l})
	if errors.Is(err, errTooLarge) {
		short := *l
		short.MoreGrants, short.Grants = short.MoreGrants+len(l.Grants), nil
		value, err = encode(&liveRecord{short})
	}
	if err != nil {
		return fmt.Errorf("state of controller %s: %w", l.Controller, err)
	}
	return s.kv.Put(ctx, livePrefix+l.Controller, value)
}

// Lives returns what controllers enforce, sorted by name. Problems lists records that cannot be read: they are left out.
func (s *Store) Lives(ctx context.Context) (lives []policy.Live, problems []error, err error) {
	keys, err := s.kv.Keys(ctx, livePrefix)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(keys)
	if len(keys) > maxLives {
		keys = keys[:maxLives]
	}
	for _, key := range keys {
		b, _, err := s.kv.Get(ctx, key)
		if errors.Is(err, ErrNoKey) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		r := &liveRecord{}
		if err = decode(b, r); err == nil && livePrefix+r.Controller != key {
			err = fmt.Errorf("%w: it is of controller %s", ErrRecord, r.Controller)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", key, err))
			continue
		}
		lives = append(lives, r.Live)
	}
	return lives, problems, nil
}
