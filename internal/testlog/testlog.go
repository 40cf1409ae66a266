// Package testlog is for tests that read what others write at the same time.
package testlog

import (
	"bytes"
	"strings"
	"sync"
)

// Log collects what is written. Its methods may be called by any goroutine. The zero value is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Has reports whether a line has all the parts.
func (l *Log) Has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		found := true
		for _, p := range parts {
			found = found && strings.Contains(line, p)
		}
		if found {
			return true
		}
	}
	return false
}
