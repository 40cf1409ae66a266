// Package ring keeps the last values of a sequence, in memory that is allocated once.
package ring

// Ring keeps the last values. It is not safe for concurrent use.
type Ring[T any] struct {
	items []T
	n     uint64 // values ever
}

// New returns a ring for so many values.
func New[T any](size int) *Ring[T] { return &Ring[T]{items: make([]T, size)} }

// Next returns the place of the next value, which has the oldest one: the caller overwrites all of it.
func (r *Ring[T]) Next() *T {
	v := &r.items[r.n%uint64(len(r.items))]
	r.n++
	return v
}

// Len returns how many values there are.
func (r *Ring[T]) Len() int { return int(min(r.n, uint64(len(r.items)))) }

// Last returns copies of the newest values for which keep is true, the newest first, at most limit. nil keeps all.
func (r *Ring[T]) Last(limit int, keep func(*T) bool) []T {
	out := []T{}
	for i := range uint64(r.Len()) {
		v := &r.items[(r.n-1-i)%uint64(len(r.items))]
		if len(out) == limit {
			break
		}
		if keep == nil || keep(v) {
			out = append(out, *v)
		}
	}
	return out
}
