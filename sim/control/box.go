package control

import "slices"

// box is a queue with a limit. An item with a key other than 0 replaces an older item with the same key and the same
// other site.
type box[T any] struct {
	most  int
	items []boxed[T]
}

type boxed[T any] struct {
	key   uint64
	other *Site
	item  T
}

func (b *box[T]) len() int { return len(b.items) }

// put appends an item, or replaces an older one and returns it. ok is false if the queue is full.
func (b *box[T]) put(key uint64, other *Site, item T) (old T, ok bool) {
	if key != 0 {
		same := func(x boxed[T]) bool { return x.key == key && x.other == other }
		if i := slices.IndexFunc(b.items, same); i >= 0 {
			old = b.items[i].item
			b.items[i].item = item
			return old, true
		}
	}
	if len(b.items) >= b.most {
		return old, false
	}
	b.items = append(b.items, boxed[T]{key, other, item})
	return old, true
}

// take removes and returns the first item. The queue must not be empty.
func (b *box[T]) take() T {
	first := b.items[0].item
	b.items = slices.Delete(b.items, 0, 1)
	return first
}
