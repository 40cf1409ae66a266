package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on what is read.
const (
	gatherLimit  = 30 * time.Second // of all
	sectionLimit = 15 * time.Second // of one part: a faulty driver may never answer
	fileMax      = 4 << 20
	entriesMax   = 1 << 16 // of a directory, a table of sockets
	devicesMax   = 1024
	filtersMax   = 1024 // of a device
	namesMax     = 64   // of sockets, flowtables, processes
)

// gatherer reads one machine. Its roots are /proc, /sys and so on, or those of a test.
type gatherer struct {
	root    string
	o       Options
	release string
	rights  Process
	// inline: read on the caller's thread, which may be in another network namespace, and wait for ever.
	inline bool
}

// note writes the result of a section into the facts, if the section has finished in time.
type note func(*Facts)

// Gather reads this machine and changes nothing. It takes at most gatherLimit. Unseen lists what it could not read.
func Gather(ctx context.Context, o Options) *Facts {
	return (&gatherer{root: "/", o: o}).gather(ctx)
}

func (g *gatherer) gather(ctx context.Context) *Facts {
	ctx, cancel := context.WithTimeout(ctx, gatherLimit)
	defer cancel()
	f := &Facts{}
	g.host()(f)
	g.release = f.Host.Release
	for _, s := range []struct {
		what string
		read func() note
	}{
		{seeProcess, g.process},
		{seeKernel, g.kernel},
		{seeBPF, g.features},
		{seeDevices, g.devices},
		{seeBypass, g.bypass},
		{seeTCP, g.tcp},
		{seeMemory, g.memory},
		{seeSwitches, g.switches},
	} {
		g.section(ctx, f, s.what, s.read)
	}
	f.adopt()
	return f
}

// adopt marks the pinned programs that are Weir's: without CAP_SYS_ADMIN the kernel returns no names.
func (f *Facts) adopt() {
	ours := map[uint32]bool{}
	for _, s := range f.Switches {
		for _, p := range s.Ports {
			ours[p.Program] = p.Program != 0
		}
	}
	for i := range f.Devices {
		for k := range f.Devices[i].Egress {
			p := &f.Devices[i].Egress[k]
			p.Ours = p.Ours || ours[p.ID]
		}
	}
}

// section runs one part, and continues without it if it takes too long.
func (g *gatherer) section(ctx context.Context, f *Facts, what string, read func() note) {
	if g.inline {
		read()(f)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sectionLimit)
	defer cancel()
	done := make(chan note, 1)
	go func() { done <- read() }()
	select {
	case apply := <-done:
		apply(f)
	case <-ctx.Done():
		f.Unseen = append(f.Unseen, Unseen{What: what, Why: fmt.Sprintf("no answer within %v: a driver may hang", sectionLimit)})
	}
}

// unseen records why something could not be read. A missing file or feature is not recorded.
func (f *Facts) unseen(what string, err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if slices.ContainsFunc(f.Unseen, func(u Unseen) bool { return u.What == what }) {
		return
	}
	denied := errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	f.Unseen = append(f.Unseen, Unseen{What: what, Why: firstLine(err), Root: denied})
}

func (g *gatherer) path(parts ...string) string {
	return filepath.Join(append([]string{g.root}, parts...)...)
}

// read reads the beginning of a file.
func (g *gatherer) read(parts ...string) ([]byte, error) {
	file, err := os.Open(g.path(parts...))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, fileMax))
}

// line reads a file of one line; "" if it cannot be read.
func (g *gatherer) line(parts ...string) string {
	b, err := g.read(parts...)
	if err != nil {
		return ""
	}
	b, _, _ = bytes.Cut(b, []byte("\n"))
	return strings.TrimSpace(string(b))
}

// number reads a file of one number, and returns other if that fails.
func (g *gatherer) number(other int, parts ...string) int {
	n, err := strconv.Atoi(g.line(parts...))
	if err != nil {
		return other
	}
	return n
}

func (g *gatherer) exists(parts ...string) bool {
	_, err := os.Lstat(g.path(parts...))
	return err == nil
}

// names lists a directory, in order.
func (g *gatherer) names(parts ...string) []string {
	dir, err := os.Open(g.path(parts...))
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	out, err := dir.Readdirnames(entriesMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.Sort(out)
	return out
}

// lines goes through a file of the kernel's line by line.
func (g *gatherer) lines(each func(fields []string) bool, parts ...string) error {
	b, err := g.read(parts...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if !each(strings.Fields(line)) {
			break
		}
	}
	return nil
}
