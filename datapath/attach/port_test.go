package attach

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Again repeats a read that failed because the data changed, but not for ever. It repeats no other failure.
func TestAgain(t *testing.T) {
	changed := fmt.Errorf("query programs: %w", unix.ENOSPC)
	for what, row := range map[string]struct {
		fails []error // one after the other, then it is read
		reads int
		err   error
	}{
		"as it is":       {nil, 1, nil},
		"changed":        {[]error{changed, changed}, 3, nil},
		"changes always": {[]error{changed, changed, changed, changed, changed, changed}, 5, unix.ENOSPC},
		"gone":           {[]error{unix.ENODEV}, 1, unix.ENODEV},
		"changed, gone":  {[]error{changed, unix.ENODEV}, 2, unix.ENODEV},
	} {
		reads := 0
		v, err := Again(unix.ENOSPC, func() (int, error) {
			reads++
			if reads <= len(row.fails) {
				return 0, row.fails[reads-1]
			}
			return 7, nil
		})
		if reads != row.reads || !errors.Is(err, row.err) || (v == 7) != (row.err == nil) {
			t.Errorf("%s: %d after %d readings, %v", what, v, reads, err)
		}
	}
}

// A narrow counter wraps in the same queue discipline; another queue discipline starts at 0.
func TestRootQueue_Since(t *testing.T) {
	before := RootQueue{Kind: "tbf", SentBytes: 9e9, SentPackets: 1<<32 - 10, Drops: 1<<32 - 1}
	for what, row := range map[string]struct{ now, want RootQueue }{
		"went on":      {RootQueue{Kind: "tbf", SentBytes: 9e9 + 500, SentPackets: 1<<32 - 5, Drops: 1<<32 - 1}, RootQueue{Kind: "tbf", SentBytes: 500, SentPackets: 5}},
		"came round":   {RootQueue{Kind: "tbf", SentBytes: 9e9 + 500, SentPackets: 10, Drops: 2, BacklogBytes: 3}, RootQueue{Kind: "tbf", SentBytes: 500, SentPackets: 20, Drops: 3, BacklogBytes: 3}},
		"began anew":   {RootQueue{Kind: "tbf", SentBytes: 500, SentPackets: 5, Drops: 1, BacklogBytes: 3}, RootQueue{Kind: "tbf", BacklogBytes: 3}},
		"another kind": {RootQueue{Kind: "htb", SentBytes: 1e10, SentPackets: 5, Drops: 1}, RootQueue{Kind: "htb"}},
	} {
		if got := row.now.Since(before); got != row.want {
			t.Errorf("%s: %+v, not %+v", what, got, row.want)
		}
		if anew := row.want.SentBytes == 0; row.now.Anew(before) != anew {
			t.Errorf("%s: anew %t", what, !anew)
		}
	}
}
