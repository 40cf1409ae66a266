package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/testseed"
	"weir/law"
	"weir/law/telemetry"
)

// A reader returns every event that was written, once and in order, with the laws.
func TestWriter(t *testing.T) {
	x := newWorld(t, Config{}, `{"lease": "1s"}`, newSICC(t, nil))
	incasts(x, testseed.New(t), 500)
	path := x.close()
	r := open(t, path)
	list := all(t, r)
	if uint64(len(list)) != x.serial+1 || list[0].Serial != 1 || list[0].Begins[0] != (LawBegins{1, "sicc", 3, `{"lease": "1s"}`}) || !list[len(list)-1].Ends {
		t.Errorf("%d entries of %d, the first %+v, the last %+v", len(list), x.serial, list[0], list[len(list)-1])
	}
	grants := 0
	for _, e := range list {
		for _, s := range e.Steps {
			grants += len(s.Actions)
			for _, a := range s.Actions {
				if g, is := a.Value.(law.Grant); !is || g.Owner != 3 || g.Cause != e.Cause {
					t.Fatalf("entry %d, cause %d: %+v", e.Serial, e.Cause, a)
				}
			}
		}
	}
	if grants != x.grants || grants == 0 || len(r.Problems()) > 0 || !r.Ended() || r.Header.Controller != "c1" || r.Header.Weir != "1.2" {
		t.Errorf("%d grants of %d, problems %q, %+v", grants, x.grants, r.Problems(), r.Header)
	}
	if s := x.w.Status(); s.Lost != 0 || s.Entries != x.serial+1 || s.Error != "" {
		t.Errorf("status %+v", s)
	}
	if st, err := os.Stat(path + ".000001"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// A nil writer records nothing.
func TestWriter_None(t *testing.T) {
	var w *Writer
	if l := (silent{}); w.Tap(l, "a", 0, nil) != law.Law(l) {
		t.Error("the law is another one")
	}
	w.Cause(1)
	if err := w.Close(); err != nil || w.Status() != nil {
		t.Error(err, w.Status())
	}
}

// Laws that get the same event share an entry, and a law that gets another one has an entry of its own. Each says what it got.
func TestWriter_LawsApart(t *testing.T) {
	x := newWorld(t, Config{}, "", silent{}, silent{}, silent{})
	x.step(law.Tick{})
	x.w.Cause(2000)
	one, two := &telemetry.Telemetry{At: 1}, &telemetry.Telemetry{At: 2}
	x.laws[0].Step(5, one, nil)
	x.laws[1].Step(5, two, nil)
	x.laws[2].Step(5, two, nil)
	x.laws[2].Step(5, two, nil) // again
	var got []string
	for _, e := range all(t, open(t, x.close())) {
		text := fmt.Sprint(e.Serial, " ", e.Cause, " ", eventText(e.Event.Value), ":")
		for _, s := range e.Steps {
			text += fmt.Sprint(" ", s.Law)
		}
		got = append(got, text)
	}
	want := []string{
		"1 1001 tick: 1 2 3", "2 2000 telemetry of switch 1, 0 ports: 1", "3 2000 telemetry of switch 2, 0 ports: 2 3",
		"4 2000 telemetry of switch 2, 0 ports: 3", "5 0 none:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The files have a limited size. A recording that lost its first files is not whole, and its first file that is left begins with the
// laws and the newest inventory.
func TestWriter_Rotates(t *testing.T) {
	x := newWorld(t, Config{Bytes: MinBytes}, "{}", newSICC(t, nil))
	rnd := testseed.New(t)
	for range 10 {
		incasts(x, rnd, 600)
	}
	path := x.close()
	list, err := piecesOf(path)
	if err != nil || len(list) != pieces {
		t.Fatalf("%d files, %v", len(list), err)
	}
	size := int64(0)
	for _, p := range list {
		st, err := os.Stat(p.path)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size > MinBytes+pieces*(chunkBytes+64<<10) || x.w.Status().Lost > 0 {
		t.Errorf("%d bytes, %+v", size, x.w.Status())
	}
	r := open(t, path)
	first, err := r.Next()
	if err != nil || first.Serial != 0 || len(first.Begins) != 1 {
		t.Fatalf("%v, %+v", err, first)
	}
	kinds := map[string]int{}
	for _, e := range all(t, r) {
		if e.Serial == 0 {
			kinds[eventText(e.Event.Value)]++
		}
	}
	if kinds["inventory of switch 1, 2 ports"] != 1 || kinds["inventory of host 1, 40 VMs"] != 1 || len(kinds) != 2 {
		t.Errorf("the inventory at the begin: %v", kinds)
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0], "its beginning is missing") {
		t.Errorf("%q", p)
	}
}

// A file that is missing in the middle is noticed, and so is one that ends within an entry.
func TestReader_MissingFile(t *testing.T) {
	x := newWorld(t, Config{Bytes: MinBytes}, "{}", newSICC(t, nil))
	incasts(x, testseed.New(t), 1400)
	path := x.close()
	list, err := piecesOf(path)
	if err != nil || len(list) < 4 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	if err := os.Remove(list[1].path); err != nil {
		t.Fatal(err)
	}
	r := open(t, path)
	all(t, r)
	if p := strings.Join(r.Problems(), "; "); !strings.Contains(p, fmt.Sprintf("file %d is missing", list[1].n)) || !strings.Contains(p, "entries before entry") {
		t.Errorf("%q", p)
	}
	st, err := os.Stat(list[2].path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(list[2].path, st.Size()-3); err != nil {
		t.Fatal(err)
	}
	r = open(t, path)
	all(t, r)
	if p := strings.Join(r.Problems(), "; "); !strings.Contains(p, fmt.Sprintf("file %d ends within an entry", list[2].n)) {
		t.Errorf("%q", p)
	}
}

// A controller that was killed leaves a recording without its last entries.
func TestReader_Killed(t *testing.T) {
	x := newWorld(t, Config{}, "{}", newSICC(t, nil))
	incasts(x, testseed.New(t), 100)
	path := x.close() + ".000001"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, path)
	if n := len(all(t, r)); n < 100 || r.Ended() || len(r.Problems()) > 0 {
		t.Errorf("%d entries, ended %v, %q", n, r.Ended(), r.Problems())
	}
}

// A second recording of the same path gets files of its own, and is the one that is read.
func TestWriter_Again(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rec")
	for range 2 {
		x := newWorld(t, Config{Path: path}, "{}", newSICC(t, nil))
		x.now = time.Second
		x.step(law.Tick{})
		x.close()
	}
	r := open(t, path)
	if list := all(t, r); len(list) != 2 || len(r.Problems()) > 0 {
		t.Errorf("%d entries, %q", len(list), r.Problems())
	}
	if list, err := piecesOf(path); err != nil || len(list) != 2 {
		t.Errorf("%d files, %v", len(list), err)
	}
}

// A full disk loses entries and counts them; the laws do not wait. When there is room again, the recording continues and is not
// whole.
func TestWriter_FullDisk(t *testing.T) {
	x := newWorld(t, Config{}, "{}", newSICC(t, nil))
	rnd := testseed.New(t)
	incasts(x, rnd, 10)
	x.flush()
	real := x.w.file.f
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	x.swap(full)
	before := x.serial
	incasts(x, rnd, 10)
	x.flush()
	x.swap(real)
	if s := x.w.Status(); s.Lost != x.serial-before || !strings.Contains(s.Error, "no space left") {
		t.Errorf("%+v, want %d lost", s, x.serial-before)
	}
	lost := x.serial - before
	incasts(x, rnd, 10)
	r := open(t, x.close())
	list := all(t, r)
	if p := r.Problems(); len(p) != 1 || !strings.HasPrefix(p[0], fmt.Sprint(lost)+" entries before entry") || uint64(len(list)) != x.serial+1-lost {
		t.Errorf("%q, %d entries", p, len(list))
	}
	if s := x.w.Status(); s.Error != "" {
		t.Errorf("%+v", s)
	}
}

// flush writes what waits, and returns when it is written or lost.
func (x *world) flush() {
	x.t.Helper()
	x.w.end()
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.hand()
	for end := time.Now().Add(30 * time.Second); x.w.entries.Load()+x.w.lost.Load() < x.serial; {
		if time.Now().After(end) {
			x.t.Fatal("the entries are not written")
		}
		x.w.mu.Unlock()
		<-time.After(time.Millisecond)
		x.w.mu.Lock()
	}
}

// swap changes the file while nothing is written.
func (x *world) swap(f *os.File) {
	x.w.file.mu.Lock()
	x.w.file.f = f
	x.w.file.mu.Unlock()
}

// While the files do not follow, entries are lost, memory is limited, and no call waits.
func TestWriter_SlowDisk(t *testing.T) {
	x := newWorld(t, Config{}, "{}", silent{})
	x.step(law.Tick{})
	x.flush()
	x.w.file.mu.Lock() // nothing can be written
	ports := make([]telemetry.Port, 1024)
	for i := range ports {
		ports[i] = telemetry.Port{N: uint32(i), BacklogBytes: 1 << 40, Packets: 1 << 40, Bytes: 1 << 50, SentBytes: 1 << 50}
	}
	for range 400 { // 12 MB
		x.step(&telemetry.Telemetry{At: 1, Ports: ports})
	}
	if x.w.lost.Load() == 0 {
		t.Errorf("nothing is lost: %+v", x.w.Status())
	}
	x.w.file.mu.Unlock()
	x.flush()
	r := open(t, x.close())
	n := uint64(len(all(t, r)))
	if p := r.Problems(); len(p) == 0 || n+x.w.lost.Load() != x.serial+1 {
		t.Errorf("%q, %d entries, %+v, %d events", p, n, x.w.Status(), x.serial)
	}
}

// An event needs few allocations, and no more of them for more ports.
func TestWriter_Allocations(t *testing.T) {
	grant := law.Grant{Key: law.Key{Pair: law.Pair{VM: 3, Peer: vmAddress(1)}}, Value: 5, Lease: 1e9}
	x := newWorld(t, Config{}, "{}", &always{[]law.Action{grant, grant}})
	out := make([]law.Action, 0, 8)
	per := func(ports int) float64 {
		e := &telemetry.Telemetry{At: 1, Ports: make([]telemetry.Port, ports)}
		return testing.AllocsPerRun(1000, func() {
			x.serial++
			x.w.Cause(x.serial)
			out = x.laws[0].Step(1, e, out[:0])
		})
	}
	if one, many := per(1), per(48); one > 20 || many > one+1 {
		t.Errorf("%v allocations per event of one port, %v of 48 ports", one, many)
	}
	x.close()
}

// Files of other versions are refused, and what is no recording.
func TestReader_OtherVersion(t *testing.T) {
	first := "\x2b\x0a\x0eweir-recording\x10\x01\x18\xf4\x8e\x9b\xcc\x0a\x20\x01\x2a\x02c1\x32\x031.2\x38\x80\x80\xd0\xcb\xcd\xb7\xd4\x87\x18" // protobuf
	whole := string(headerOnly(t, &Header{Format: format, Version: Version, Piece: 1}))
	for _, row := range []struct{ file, says string }{
		{first, "version 1 of the format, and this build reads 3"},
		{string(headerOnly(t, &Header{Format: format, Version: Version + 1})), "version 4 of the format, and this build reads 3"},
		{string(headerOnly(t, &Header{Format: "other"})), "does not begin as a recording does"},
		{"", "does not begin as a recording does"},
		{"version: 1\n", "does not begin as a recording does"},
		{whole[:len(whole)-1], "no whole header"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(row.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q: %v, want %s", row.file, err, row.says)
		}
	}
}
