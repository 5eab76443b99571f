package checks

import (
	"context"
	"sync"
)

// OnceValue returns a function that derives a value from a Subject at its first call with that Subject, and returns the
// same value afterwards.
func OnceValue[T any](derive func(s *Subject) T) func(s *Subject) T {
	key := new(byte)
	return func(s *Subject) T {
		once, ok := s.derived.Load(key)
		if !ok {
			once, _ = s.derived.LoadOrStore(key, sync.OnceValue(func() T { return derive(s) }))
		}
		return once.(func() T)()
	}
}

// OnceValues is OnceValue for functions that take long or may fail. An error is kept as well, even that of a context,
// because a Subject is for one Run.
func OnceValues[T, E any](derive func(ctx context.Context, s *Subject) (T, E)) func(ctx context.Context, s *Subject) (T, E) {
	key := new(byte)
	return func(ctx context.Context, s *Subject) (T, E) {
		once, ok := s.derived.Load(key)
		if !ok {
			once, _ = s.derived.LoadOrStore(key, sync.OnceValues(func() (T, E) { return derive(ctx, s) }))
		}
		return once.(func() (T, E))()
	}
}
