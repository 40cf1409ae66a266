package lab

import (
	"testing"
	"time"
)

// The lab of 28 servers with their hypervisors comes and goes fast enough to be made for every run.
func TestRacksOf28ServersUpAndDownInTime(t *testing.T) {
	needRoot(t)
	before := kernelMemoryKB()
	start := time.Now()
	l, err := Up(t.Context(), testName("28"), racks(4, 7, true).config(), Options{Owned: true})
	if err != nil {
		t.Fatal(err)
	}
	up := time.Since(start)
	memory := kernelMemoryKB() - before
	start = time.Now()
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	down := time.Since(start)
	t.Logf("%d nodes: up %v, down %v, kernel memory grew by %d KB", len(l.Nodes()), up, down, memory)
	if up > 10*time.Second || down > 5*time.Second {
		t.Errorf("up %v, want at most 10 s; down %v, want at most 5 s", up, down)
	}
	if left := l.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
