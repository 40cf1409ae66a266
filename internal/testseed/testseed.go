// Package testseed gives tests their random numbers, and logs how to run a test again with the same ones.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Variable names the environment variable with the seed of all tests that use random numbers. Without it each process has
// another seed.
const Variable = "WEIR_SEED"

var clock = sync.OnceValue(func() uint64 { return uint64(time.Now().UnixNano()) })

// Seed returns the test's seed and logs how to run the test again with it. All tests of a process have the same seed.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := clock()
	if text := os.Getenv(Variable); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			tb.Fatalf("%s=%q: want an integer of 64 bits without a sign", Variable, text)
		}
		seed = n
	}
	tb.Logf("seed %d; again with the same: %s=%[1]d go test -run '^%[3]s$'", seed, Variable, tb.Name())
	return seed
}

// New returns a source of random numbers that is seeded with Seed.
func New(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), 0))
}
