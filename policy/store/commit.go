package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/policy"
)

// The actions of changes.
const (
	Apply    = "apply"
	Delete   = "delete"
	Rollback = "rollback"
)

// Text is a policy that is added or replaced. Its text was checked.
type Text struct {
	Name string
	Text []byte
}

// ConflictError reports that others changed the policies after the snapshot was read. Nothing was changed.
type ConflictError struct{ Other *Change }

func (e *ConflictError) Error() string {
	what := "the policies were changed"
	if o := e.Other; o != nil {
		what = fmt.Sprintf("%s changed the policies (change %d, %s %s)", o.By, o.Number, o.Action, o.names())
	}
	return what + " at the same time, so nothing was changed: look at 'weir policy log', and run the command again"
}

func (c *Change) names() string {
	const most = 5
	var out []string
	for i, p := range c.Policies {
		if i == most {
			out = append(out, "...")
			break
		}
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

// Commit adds or replaces policies and deletes others, all or nothing. base is what the change was checked against: if it is not
// the newest any more, the error is a ConflictError.
//
// The new texts and the log's entry are stored first, under names that nobody else uses. The replacement of the head then makes
// them valid.
func (s *Store) Commit(ctx context.Context, base *Snapshot, action string, set []Text, remove []string) (*Change, error) {
	change := &Change{Number: base.Change + 1, Time: s.now().UTC(), By: s.who.Identity, User: s.who.User, Action: action, Before: base.log}
	head := headRecord{Format: 1, Change: change.Number, Log: logKey(change.Number, s.id(), s.who.key())}
	entries, err := s.entries(ctx, base, change, set, remove)
	if err != nil {
		return nil, err
	}
	if len(change.Policies) == 0 {
		return nil, errors.New("there is nothing to change")
	}
	packs, err := s.place(entries)
	if err != nil {
		return nil, err
	}
	head.Policies = make([]headEntry, len(entries))
	for i, e := range entries {
		head.Policies[i] = e.head
	}
	value, err := encode(&head)
	if errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("there are too many policies: %w", err)
	}
	if err != nil {
		return nil, err
	}
	entry, err := encode(change)
	if err != nil {
		return nil, err
	}
	packs[changePrefix+head.Log] = entry
	if err := s.write(ctx, packs, value, base.revision, head.Log); err != nil {
		return nil, err
	}
	return change, nil
}

// write stores what is new, and replaces the head last.
func (s *Store) write(ctx context.Context, values map[string][]byte, head []byte, revision uint64, log string) error {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	err := each(len(keys), func(i int) error { return s.kv.Update(ctx, keys[i], values[keys[i]], 0) })
	if err != nil {
		return err
	}
	err = s.kv.Update(ctx, headKey, head, revision)
	if errors.Is(err, ErrChanged) {
		return s.conflict(ctx, log)
	}
	if err != nil {
		return fmt.Errorf("%w; 'weir policy log' shows whether the change was made all the same", err)
	}
	return nil
}

// conflict describes who changed the policies. It returns nil if that was this change: the answer to its first attempt was lost.
func (s *Store) conflict(ctx context.Context, own string) error {
	head, _, err := s.head(ctx)
	if err == nil && head.Log == own {
		return nil
	}
	out := &ConflictError{}
	if err == nil && head.Change > 0 {
		out.Other, _ = s.change(ctx, head.Log, head.Change)
	}
	return out
}

// entry is a policy of the next head. text is nil if its text is stored already.
type entry struct {
	head headEntry
	text *packEntry
}

// entries returns the policies of the next head, sorted by name, and lists the changes.
func (s *Store) entries(ctx context.Context, base *Snapshot, c *Change, set []Text, remove []string) ([]entry, error) {
	next := map[string]entry{}
	for _, p := range base.Policies {
		next[p.Name] = entry{head: headEntry{Name: p.Name, Version: p.Version, Since: p.Since, Text: p.text}}
	}
	for _, d := range base.deleted {
		next[d.Name] = entry{head: d}
	}
	live := len(base.Policies)
	for _, name := range remove {
		e, has := next[name]
		if !has || e.head.Deleted {
			return nil, fmt.Errorf("there is no policy %s", name)
		}
		e.head.Deleted, e.head.Since = true, c.Number
		next[name] = e
		live--
		c.Policies = append(c.Policies, ChangedPolicy{name, e.head.Version, 0})
	}
	for _, t := range set {
		before := next[t.Name]
		e := entry{
			head: headEntry{Name: t.Name, Version: before.head.Version + 1, Since: c.Number},
			text: &packEntry{Name: t.Name, Version: before.head.Version + 1, Text: string(t.Text)},
		}
		from := 0
		if stored, has := base.Find(t.Name); has {
			e.head.Since, from = stored.Since, stored.Version
			e.text.Past = append([]ref{stored.text}, stored.past...)
		} else {
			live++
			past, err := s.past(ctx, before.head)
			if err != nil {
				return nil, err
			}
			e.text.Past = past
		}
		e.text.Past = e.text.Past[:min(len(e.text.Past), MaxVersions)]
		next[t.Name] = e
		c.Policies = append(c.Policies, ChangedPolicy{t.Name, from, e.head.Version})
	}
	if live > policy.MaxPolicies {
		return nil, fmt.Errorf("there would be %d policies, and the limit is %d: delete some, or select more with one", live, policy.MaxPolicies)
	}
	slices.SortFunc(c.Policies, func(a, b ChangedPolicy) int { return strings.Compare(a.Name, b.Name) })
	return forget(next), nil
}

// past returns the references to the versions of a deleted policy, the newest first.
func (s *Store) past(ctx context.Context, deleted headEntry) ([]ref, error) {
	if !deleted.Deleted {
		return nil, nil // there was none
	}
	packs, err := s.packs(ctx, map[string]bool{deleted.Text.Pack: true})
	if err != nil {
		return nil, err
	}
	out := []ref{deleted.Text}
	if e, err := packs[deleted.Text.Pack].entry(deleted.Text, deleted.Name, deleted.Version); err == nil {
		out = append(out, e.Past...)
	}
	return out, nil
}

// forget sorts the entries, without the policies that were deleted first if there are too many.
func forget(next map[string]entry) []entry {
	var out []entry
	var deleted []uint64
	for _, e := range next {
		out = append(out, e)
		if e.head.Deleted {
			deleted = append(deleted, e.head.Since)
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.head.Name, b.head.Name) })
	over := len(deleted) - MaxDeleted
	if over <= 0 {
		return out
	}
	slices.Sort(deleted)
	last := deleted[over-1] // all of one change go together
	return slices.DeleteFunc(out, func(e entry) bool { return e.head.Deleted && e.head.Since <= last })
}

// place puts new texts into packs, sets the references of the head, and returns the packs by key.
func (s *Store) place(entries []entry) (map[string][]byte, error) {
	var texts []int
	size := 0
	out := map[string][]byte{}
	flush := func() error {
		err := s.placeSome(entries, texts, out)
		texts, size = nil, 0
		return err
	}
	for i := range entries {
		if entries[i].text == nil {
			continue
		}
		if size += len(entries[i].text.Text); size > maxPack {
			if err := flush(); err != nil {
				return nil, err
			}
			size = len(entries[i].text.Text)
		}
		texts = append(texts, i)
	}
	return out, flush()
}

// placeSome makes one pack of texts, or two if they are too many for one value.
func (s *Store) placeSome(entries []entry, texts []int, out map[string][]byte) error {
	if len(texts) == 0 {
		return nil
	}
	p := pack{Format: 1}
	for _, i := range texts {
		p.Texts = append(p.Texts, *entries[i].text)
	}
	value, err := encode(&p)
	if errors.Is(err, errTooLarge) && len(texts) > 1 {
		half := len(texts) / 2
		if err := s.placeSome(entries, texts[:half], out); err != nil {
			return err
		}
		return s.placeSome(entries, texts[half:], out)
	}
	if err != nil {
		return err
	}
	key := s.who.key() + "." + s.id()
	out[textPrefix+key] = value
	for at, i := range texts {
		entries[i].head.Text = ref{key, at}
	}
	return nil
}
