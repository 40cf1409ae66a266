package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fxamacker/cbor/v2"
)

// problemsMax limits how many reasons a reader lists.
const problemsMax = 16

// Reader reads the entries of a recording, from its first file to its last.
type Reader struct {
	Header Header // of the first file

	files  []string
	open   io.Closer
	in     limited
	items  *cbor.Decoder
	piece  uint32
	serial uint64 // of the last entry
	later  bool   // a further file
	ended  bool   // the recording was closed
	cut    bool   // its last entry is not complete
	wrong  []string
	more   int // further problems
}

// Open opens a recording: the newest one whose files are path and a number, or the one file path.
func Open(path string) (*Reader, error) {
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		return newReader([]string{path})
	}
	list, err := piecesOf(path)
	if err != nil {
		return nil, fmt.Errorf("open a recording: %w", err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("open a recording: there is no file %s or %s.000001", path, path)
	}
	newest, err := headerOf(list[len(list)-1].path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, p := range list {
		if h, err := headerOf(p.path); err == nil && h.Run == newest.Run {
			files = append(files, p.path)
		}
	}
	return newReader(files)
}

func headerOf(path string) (*Header, error) {
	r, err := newReader([]string{path})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return &r.Header, nil
}

func newReader(files []string) (*Reader, error) {
	r := &Reader{files: files}
	h, err := r.nextFile()
	if err != nil {
		return nil, err
	}
	r.Header = *h
	if h.Piece != 1 {
		r.problem("its beginning is missing: the first file is number %d of the recording", h.Piece)
	}
	return r, nil
}

// nextFile opens the next file. io.EOF: there is none.
func (r *Reader) nextFile() (*Header, error) {
	if len(r.files) == 0 {
		return nil, io.EOF
	}
	path := r.files[0]
	r.files = r.files[1:]
	r.Close()
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a recording: %w", err)
	}
	r.open = f
	h, err := r.begin(f)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// limited reads a file, but no more than MaxEntry bytes for an entry.
type limited struct {
	in   *bufio.Reader
	left int
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, fmt.Errorf("%w: an entry of more than %d bytes", ErrMalformed, MaxEntry)
	}
	n, err := l.in.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

// begin reads the header of a file.
func (r *Reader) begin(in io.Reader) (*Header, error) {
	r.in.in = bufio.NewReaderSize(in, 64<<10)
	r.items = decoding.NewDecoder(&r.in)
	first, _ := r.in.in.Peek(64) // also of a shorter file
	var h Header
	err := r.item(&h)
	switch {
	case !bytes.Contains(first, []byte(format)) || err == nil && h.Format != format:
		return nil, fmt.Errorf("%w: it does not begin as a recording does", ErrMalformed)
	case bytes.Contains(first, []byte("\n\x0e"+format)): // protobuf: its first field
		return nil, fmt.Errorf("the recording has version 1 of the format, and this build reads %d", Version)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: no whole header", ErrMalformed)
	case err != nil:
		return nil, err
	case h.Version != Version:
		return nil, fmt.Errorf("the recording has version %d of the format, and this build reads %d", h.Version, Version)
	}
	if r.piece > 0 && h.Piece != r.piece+1 {
		r.problem("file %d is missing", r.piece+1)
	}
	r.piece = h.Piece
	return &h, nil
}

// item reads the next item of a file. io.EOF: the file ends before it; io.ErrUnexpectedEOF: within it.
func (r *Reader) item(v any) error {
	r.in.left = MaxEntry
	err := r.items.Decode(v)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrMalformed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// Next returns the next entry, which is valid until the next call; io.EOF after the last one. Inventory that a later file repeats is
// left out, unless it is the first file that is read.
func (r *Reader) Next() (*Entry, error) {
	for {
		e := &Entry{}
		err := r.item(e)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if r.cut = !errors.Is(err, io.EOF); r.cut && len(r.files) > 0 {
				r.problem("file %d ends within an entry", r.piece)
			}
			if _, err := r.nextFile(); err != nil {
				return nil, err
			}
			r.later = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("after entry %d: %w", r.serial, err)
		}
		if e.Serial == 0 && r.later {
			continue
		}
		r.note(e)
		return e, nil
	}
}

// note looks for what makes the recording not whole.
func (r *Reader) note(e *Entry) {
	if e.Serial > 0 {
		switch {
		case e.Serial <= r.serial:
			r.problem("entry %d comes after entry %d", e.Serial, r.serial)
		case e.Serial > r.serial+1 && (r.serial > 0 || r.Header.Piece == 1):
			r.problem("%d entries before entry %d are missing", e.Serial-r.serial-1, e.Serial)
		}
		r.serial = e.Serial
	}
	if e.Event.Other != "" {
		r.problem("entry %d is an event of kind %s, which the format does not have", e.Serial, e.Event.Other)
	}
	for _, l := range e.Begins {
		if l.Law == 0 {
			r.problem("law %s is not recorded", l.Name)
		}
	}
	for _, s := range e.Steps {
		for _, a := range s.Actions {
			if a.Value == nil {
				r.problem("entry %d has an action of kind %q, which the format does not have", e.Serial, a.Other)
			}
		}
	}
	r.ended = e.Ends
}

func (r *Reader) problem(text string, a ...any) {
	if len(r.wrong) == problemsMax {
		r.more++
		return
	}
	r.wrong = append(r.wrong, fmt.Sprintf(text, a...))
}

// Problems returns why what was read is not all that happened; none: it is. A recording without an end is that of a process that was
// killed, and lacks its last entries only.
func (r *Reader) Problems() []string {
	out := append([]string(nil), r.wrong...)
	if r.more > 0 {
		out = append(out, fmt.Sprintf("and %d more", r.more))
	}
	return out
}

// Ended reports whether the recording was closed.
func (r *Reader) Ended() bool { return r.ended }

// Close closes the current file.
func (r *Reader) Close() {
	if r.open != nil {
		_ = r.open.Close() // it was only read
		r.open = nil
	}
}
