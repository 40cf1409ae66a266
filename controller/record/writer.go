package record

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"weir/law"
	"weir/law/inventory"
)

// Defaults and limits of a writer.
const (
	DefaultBytes  = 256 << 20 // of all files
	MinBytes      = 1_000_000
	pieces        = 8         // files at most
	chunkBytes    = 256 << 10 // that the writing goroutine gets at once
	chunksMax     = 16        // that wait for it; further entries are lost
	contextMax    = 32 << 20  // bytes of the newest inventory that a later file begins with
	flushEvery    = 250 * time.Millisecond
	closePatience = 5 * time.Second  // for the last entries
	saidEvery     = 10 * time.Second // between two log lines about lost entries
)

// Config configures a writer.
type Config struct {
	Path       string // the files are Path and a number
	Bytes      int64  // of all files; the oldest is removed
	Controller string
	Weir       string // version
	Log        *slog.Logger
}

// Writer writes a recording. Laws that Tap returned and Cause are called by the laws' goroutine, and never wait: if the files cannot follow,
// entries are lost and counted, and their serial numbers are missing. A nil Writer records nothing.
type Writer struct {
	cfg  Config
	file *files

	last    uint64    // serial number of the entry; of the laws' goroutine, as all of these
	cause   uint64    // serial number of the controller's event
	entry   written   // that has begun; serial number 0: none
	event   law.Event // of the entry; borrowed, and only compared
	parts   bytes.Buffer
	whole   bytes.Buffer
	list    []any             // the actions of a step
	laws    []LawBegins       // all
	more    []LawBegins       // that no entry has yet
	piece   int64             // bytes of the current file
	context map[string][]byte // the newest inventory, by switch or host: encoded entries
	known   int               // bytes of context
	err     error             // the entry cannot be encoded

	mu      sync.Mutex // guards what waits
	waiting chunk
	full    chan chunk
	free    chan []byte // memory of chunks that were written
	done    sync.WaitGroup
	stop    chan struct{}

	entries, lost atomic.Uint64
}

// chunk is entries on their way to the files.
type chunk struct {
	data    []byte
	entries uint64
	begins  bool // a new file begins with it
}

// New makes the first file of a recording.
func New(cfg Config) (*Writer, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = DefaultBytes
	}
	if cfg.Bytes < MinBytes {
		return nil, fmt.Errorf("a recording of %d bytes, want at least %d", cfg.Bytes, MinBytes)
	}
	var run [8]byte
	if _, err := rand.Read(run[:]); err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, context: map[string][]byte{}, full: make(chan chunk, chunksMax), free: make(chan []byte, 2), stop: make(chan struct{})}
	w.file = &files{
		path: filepath.Clean(cfg.Path), log: cfg.Log,
		header: Header{
			Format: format, Version: Version, Run: binary.LittleEndian.Uint64(run[:]), Controller: cfg.Controller, Weir: cfg.Weir, BeganUnix: time.Now().UnixNano(),
		},
	}
	if err := w.file.next(); err != nil {
		return nil, err
	}
	w.done.Go(w.write)
	return w, nil
}

// Tap returns a law that does what l does, and has it recorded: each event that it gets, and the actions that it gives. params are its
// parameters in JSON. A law of which there are too many is not recorded, and the recording says so.
func (w *Writer) Tap(l law.Law, name string, owner law.Owner, params []byte) law.Law {
	if w == nil {
		return l
	}
	b := LawBegins{Law: uint32(len(w.laws) + 1), Name: name, Owner: owner, Params: string(params)}
	if len(w.laws) >= maxLaws || len(params) > maxText {
		w.more = append(w.more[:0], LawBegins{Name: name})
		return l
	}
	w.laws = append(w.laws, b)
	w.more = append(w.more, b)
	return &tap{law: l, w: w, number: b.Law, owner: owner}
}

// tap is a law that is recorded.
type tap struct {
	law    law.Law
	w      *Writer
	number uint32
	owner  law.Owner
}

// Wake implements law.Law.
func (t *tap) Wake() time.Duration { return t.law.Wake() }

// Step implements law.Law.
func (t *tap) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	before := len(out)
	out = t.law.Step(now, e, out)
	t.w.step(t, now, e, out[before:])
	return out
}

// Explain implements law.Explainer.
func (t *tap) Explain(b []byte) []byte {
	if x, is := t.law.(law.Explainer); is {
		return x.Explain(b)
	}
	return b
}

// Cause has the serial number of the event that follows.
func (w *Writer) Cause(serial uint64) {
	if w == nil {
		return
	}
	w.end()
	w.cause = serial
}

// step adds what a law did with an event. Laws that get the same event one after the other share an entry.
func (w *Writer) step(t *tap, now time.Duration, e law.Event, actions []law.Action) {
	steps := w.entry.Steps
	if w.entry.Serial == 0 || e != w.event || now != w.entry.Now || t.number <= steps[len(steps)-1].Law {
		w.end()
		w.last++
		w.entry.Serial, w.entry.Now, w.entry.Cause = w.last, now, w.cause
		w.event = e
		w.entry.Event = w.encode(known(e))
		w.remember(e, w.entry.Event)
	}
	w.list = issued(w.list[:0], actions, t.owner, w.cause)
	w.entry.Steps = append(w.entry.Steps, step[cbor.RawMessage]{Law: t.number, Actions: w.encode(w.list)})
	clear(w.list)
}

func (w *Writer) encode(v any) cbor.RawMessage {
	b, err := encode(&w.parts, v)
	if w.err == nil {
		w.err = err
	}
	return b
}

// issued returns actions as a recording has them, and as the controller issues them: a grant names its owner and the event that it
// answers.
func issued(to []any, actions []law.Action, owner law.Owner, cause uint64) []any {
	for _, a := range actions {
		if g, is := a.(law.Grant); is {
			if g.Owner = owner; g.Cause == 0 {
				g.Cause = cause
			}
			a = g
		}
		to = append(to, known(a))
	}
	return to
}

// end ends the entry, if one has begun.
func (w *Writer) end() {
	if w.entry.Serial == 0 {
		return
	}
	w.entry.Begins = w.more
	w.whole.Reset()
	b, err := encode(&w.whole, &w.entry)
	err = cmp.Or(w.err, err)
	w.entry, w.event, w.more, w.err = written{Steps: w.entry.Steps[:0]}, nil, w.more[:0], nil
	w.parts.Reset()
	if err != nil || len(b) > MaxEntry {
		w.lost.Add(1)
		w.parts, w.whole = bytes.Buffer{}, bytes.Buffer{} // they may be large
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.piece >= w.cfg.Bytes/pieces {
		w.turn()
	}
	w.waiting.data = append(w.waiting.data, b...)
	w.waiting.entries++
	w.piece += int64(len(b))
	if len(w.waiting.data) >= chunkBytes {
		w.hand()
	}
}

// hand passes what waits to the writing goroutine. If it is behind, the entries are lost. The caller has the lock.
func (w *Writer) hand() {
	if w.waiting.entries == 0 && !w.waiting.begins {
		return
	}
	select {
	case w.full <- w.waiting:
		w.waiting = chunk{data: w.spare()}
	default:
		w.lost.Add(w.waiting.entries)
		// A file that should have begun begins with the next entries.
		w.waiting = chunk{data: w.waiting.data[:0], begins: w.waiting.begins}
		if w.waiting.begins {
			w.inventory()
		}
	}
}

// spare returns memory of a chunk that was written, if there is one.
func (w *Writer) spare() []byte {
	select {
	case b := <-w.free:
		return b[:0]
	default:
		return nil
	}
}

// turn begins another file, with the laws and the newest inventory. The caller has the lock.
func (w *Writer) turn() {
	w.hand()
	w.piece = 0
	w.waiting.begins = true
	w.inventory()
}

func (w *Writer) inventory() {
	b, err := encode(new(bytes.Buffer), &written{Begins: w.laws, Event: noEvent})
	if err != nil {
		b = nil // a reader says that a law did not begin
	}
	w.waiting.data = append(w.waiting.data[:0], b...)
	for _, b := range w.context {
		w.waiting.data = append(w.waiting.data, b...)
	}
}

// remember keeps the newest inventory.
func (w *Writer) remember(e law.Event, encoded cbor.RawMessage) {
	set := func(kind string, n uint64, encoded cbor.RawMessage) {
		key := fmt.Sprint(kind, n)
		w.known -= len(w.context[key])
		delete(w.context, key)
		if encoded == nil {
			return
		}
		if b, err := encode(new(bytes.Buffer), &written{Event: encoded}); err == nil && w.known+len(b) <= contextMax {
			w.context[key] = b
			w.known += len(b)
		}
	}
	switch e := e.(type) {
	case *inventory.Switch:
		set("switch", uint64(e.At), encoded)
	case *inventory.SwitchLeft:
		set("switch", uint64(e.At), nil)
	case *inventory.Host:
		set("host", uint64(e.At), encoded)
	case *inventory.HostLeft:
		set("host", uint64(e.At), nil)
	}
}

// write writes chunks until stop.
func (w *Writer) write() {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		select {
		case c := <-w.full:
			w.put(c)
		case <-flush.C:
			w.mu.Lock()
			if len(w.full) == 0 { // otherwise there is enough to write
				w.hand()
			}
			w.mu.Unlock()
		case <-w.stop:
			for {
				select {
				case c := <-w.full:
					w.put(c)
				default:
					return
				}
			}
		}
	}
}

func (w *Writer) put(c chunk) {
	defer func() {
		select {
		case w.free <- c.data:
		default:
		}
	}()
	if err := w.file.put(&c); err != nil {
		w.lost.Add(c.entries)
		return
	}
	w.entries.Add(c.entries)
}

// Close ends the recording. No law runs any more.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.end()
	w.last++
	w.entry.Serial, w.entry.Event, w.entry.Ends = w.last, noEvent, true
	w.end()
	w.mu.Lock()
	last := w.waiting
	w.waiting = chunk{}
	w.mu.Unlock()
	select { // the last entries may wait
	case w.full <- last:
	case <-time.After(closePatience):
		w.lost.Add(last.entries)
	}
	close(w.stop)
	w.done.Wait()
	return w.file.close()
}

// Status is the state of a recording.
type Status struct {
	Path    string `json:"path"`
	Entries uint64 `json:"entries"`         // written
	Lost    uint64 `json:"lost"`            // the files could not follow, or could not be written
	Error   string `json:"error,omitempty"` // of the last attempt to write
}

// Status may be called by any goroutine; nil: nothing is recorded.
func (w *Writer) Status() *Status {
	if w == nil {
		return nil
	}
	s := &Status{Path: w.cfg.Path, Entries: w.entries.Load(), Lost: w.lost.Load()}
	if err := w.file.failed.Load(); err != nil {
		s.Error = (*err).Error()
	}
	return s
}
