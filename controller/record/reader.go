package record

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// problemsMax limits how many reasons a reader lists.
const problemsMax = 16

// Reader reads the entries of a recording, from its first file to its last.
type Reader struct {
	Header Header // of the first file

	files  []string
	open   io.ReadCloser
	in     *bufio.Reader
	buf    []byte
	fields []field
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

// begin reads the header of a file.
func (r *Reader) begin(in io.Reader) (*Header, error) {
	r.in = bufio.NewReaderSize(in, 64<<10)
	b, err := r.message()
	if err != nil {
		return nil, fmt.Errorf("%w: no header", ErrMalformed)
	}
	var h Header
	if err := decodeMessage(&r.fields, b, &h, (*coder).header); err != nil {
		return nil, err
	}
	if h.Format != format {
		return nil, fmt.Errorf("%w: it does not begin as a recording does", ErrMalformed)
	}
	if h.Version > Version || h.Version == 0 {
		return nil, fmt.Errorf("the recording has version %d of the format, and this build reads %d", h.Version, Version)
	}
	if r.piece > 0 && h.Piece != r.piece+1 {
		r.problem("file %d is missing", r.piece+1)
	}
	r.piece = h.Piece
	return &h, nil
}

// message returns the bytes of the next message, which are valid until the next call. io.EOF: the file ends after a message;
// io.ErrUnexpectedEOF: within one.
func (r *Reader) message() ([]byte, error) {
	if _, err := r.in.Peek(1); err != nil {
		return nil, err
	}
	n, err := binary.ReadUvarint(r.in)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil || n > MaxEntry:
		return nil, fmt.Errorf("%w: a message of %d bytes, want at most %d", ErrMalformed, n, MaxEntry)
	}
	if uint64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

func decodeMessage[T any](fields *[]field, b []byte, v *T, body func(*coder, *T)) error {
	c := &coder{mode: decode, room: maxElements}
	c.in = c.fieldsOf(b, (*fields)[:0])
	*fields = c.in
	if c.err == nil {
		body(c, v)
	}
	return c.err
}

// Next returns the next entry, which is valid until the next call; io.EOF after the last one. Inventory that a later file repeats is
// left out, unless it is the first file that is read.
func (r *Reader) Next() (*Entry, error) {
	for {
		b, err := r.message()
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
			return nil, err
		}
		e := &Entry{}
		if err := decodeMessage(&r.fields, b, e, (*coder).entry); err != nil {
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
	if e.Other != "" {
		r.problem("entry %d is an event of kind %s, which the format does not have", e.Serial, e.Other)
	}
	for _, l := range e.Begins {
		if l.Law == 0 {
			r.problem("law %s is not recorded", l.Name)
		}
	}
	for _, s := range e.Steps {
		for _, a := range s.Actions {
			if a.Action == nil {
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
