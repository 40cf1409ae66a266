package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// processTime returns the processor time of a process, user and system, including threads that ended. It is the
// kernel's own sum; /proc/PID/stat has it only in hundredths of a second.
func processTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	const scheduler = 2 // CPUCLOCK_SCHED
	if err := unix.ClockGettime(^int32(pid)<<3|scheduler, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memoryOf returns a line of /proc/PID/status, in bytes: VmRSS, VmHWM.
func memoryOf(pid int, field string) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// kernelObject is a map or a program that a process has open, as shown in /proc/PID/fdinfo.
type kernelObject struct {
	kind       string // map, prog
	id         uint64
	maxEntries uint64 // of a map
	bytes      float64
}

// kernelObjects returns the objects of a process, and the maps that only its programs use, each once.
func kernelObjects(pid int) ([]kernelObject, error) {
	out, err := heldObjects(pid)
	if err != nil {
		return nil, err
	}
	have := map[uint64]bool{}
	for _, o := range out {
		have[o.id] = have[o.id] || o.kind == "map"
	}
	for _, o := range slices.Clone(out) {
		if o.kind != "prog" {
			continue
		}
		ids, err := mapsOf(o.id)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if have[id] {
				continue
			}
			have[id] = true
			m, err := mapByID(id)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, nil
}

// mapsOf returns the ids of a program's maps.
func mapsOf(program uint64) (ids []uint64, err error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	maps, _ := info.MapIDs()
	for _, id := range maps {
		ids = append(ids, uint64(id))
	}
	return ids, nil
}

func mapByID(id uint64) (o kernelObject, err error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return o, err
	}
	defer m.Close()
	f, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	if err != nil {
		return o, err
	}
	defer f.Close()
	o, ok, err := readObject(f)
	if err == nil && !ok {
		err = fmt.Errorf("map %d reports no memory", id)
	}
	return o, err
}

// heldObjects returns the objects that a process has open.
func heldObjects(pid int) ([]kernelObject, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return nil, err
	}
	type key struct {
		kind string
		id   uint64
	}
	seen := map[key]bool{}
	var out []kernelObject
	for _, name := range files {
		f, err := os.Open(name)
		if isGone(err) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, err
		}
		o, ok, err := readObject(f)
		_ = f.Close()
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if k := (key{o.kind, o.id}); ok && !seen[k] {
			seen[k] = true
			out = append(out, o)
		}
	}
	return out, nil
}

func isGone(err error) bool {
	return err != nil && (os.IsNotExist(err) || strings.Contains(err.Error(), unix.ESRCH.Error()))
}

// readObject reads the fdinfo of one file; ok if it is a map or a program. A link also has the id of its program:
// only entries with memory are objects.
func readObject(r io.Reader) (o kernelObject, ok bool, err error) {
	for s := bufio.NewScanner(r); ; {
		if !s.Scan() {
			return o, ok && o.kind != "", s.Err()
		}
		name, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		var n *uint64
		var memory uint64
		switch name {
		case "map_id":
			o.kind, n = "map", &o.id
		case "prog_id":
			o.kind, n = "prog", &o.id
		case "max_entries":
			n = &o.maxEntries
		case "memlock":
			ok, n = true, &memory
		default:
			continue
		}
		if *n, err = strconv.ParseUint(value, 10, 64); err != nil {
			return o, false, err
		}
		if n == &memory {
			o.bytes = float64(memory)
		}
	}
}

// sumOf returns the memory of one kind, and the number of objects.
func sumOf(objects []kernelObject, kind string) (bytes float64, n int) {
	for _, o := range objects {
		if o.kind == kind {
			bytes, n = bytes+o.bytes, n+1
		}
	}
	return bytes, n
}

// peak returns the largest resident memory of a process that ends by itself. The value of wait4 would be that of
// the process that forked it, if that is larger.
func peak(pid int, ended <-chan struct{}) (bytes float64, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			if bytes == 0 {
				err = fs.ErrNotExist
			}
			return bytes, err
		case <-tick.C:
		}
		// A process that has ended, and is not waited for yet, does not have this line.
		if now, err := memoryOf(pid, "VmHWM"); err == nil {
			bytes = max(bytes, now)
		}
	}
}
