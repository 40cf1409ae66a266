// Package vector reads and writes test vectors of the per-packet laws: one text format for the native
// code, the kernel programs and the hardware.
//
//	# A comment, or nothing.
//	law fairq
//	case first flow              # begins anew: configuration and state all 0
//	config target_bytes=25000 period_ns=500000
//	state flows=1                # where it begins
//	do sample now_ns=50000 backlog_bytes=3000
//	is flows=1 window_q8=6400000 backlogs=[0,0,77] result=1
//
// A line is a keyword, for do the name of an event, and KEY=VALUE pairs in any order. A value is an
// unsigned decimal integer or, of an array, a list of them. A field that is not named is 0, and so is
// the rest of a list. An is line states everything: the whole state after the event, and its result.
// The state after one event is the state before the next.
package vector

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Fields are the values that are not 0, in the order of writing.
type Fields []Field

// Field is one value.
type Field struct {
	Key   string // for an element of an array NAME.INDEX
	Value uint64
}

// Get returns the value of a key, 0 if it is missing.
func (f Fields) Get(key string) uint64 {
	for _, field := range f {
		if field.Key == key {
			return field.Value
		}
	}
	return 0
}

// Equal reports whether two sets of fields mean the same.
func (f Fields) Equal(g Fields) bool {
	for _, pair := range [][2]Fields{{f, g}, {g, f}} {
		for _, field := range pair[0] {
			if pair[1].Get(field.Key) != field.Value {
				return false
			}
		}
	}
	return true
}

// String writes the fields as a line of a file. Elements of an array are next to each other in f. Those that
// are 0 may be missing, and String leaves out trailing ones.
func (f Fields) String() string {
	var b strings.Builder
	for i := 0; i < len(f); {
		array, _, ok := element(f[i].Key)
		if !ok {
			fmt.Fprintf(&b, " %s=%d", f[i].Key, f[i].Value)
			i++
			continue
		}
		last := 0 // the highest index of an element that is not 0
		for ; i < len(f); i++ {
			a, index, ok := element(f[i].Key)
			if !ok || a != array {
				break
			}
			if f[i].Value != 0 {
				last = max(last, index)
			}
		}
		fmt.Fprintf(&b, " %s=[%d", array, f.Get(array+".0"))
		for j := 1; j <= last; j++ {
			fmt.Fprintf(&b, ",%d", f.Get(fmt.Sprint(array, ".", j)))
		}
		b.WriteByte(']')
	}
	return b.String()
}

// mostElements is the largest length of an array that is written as a list.
const mostElements = 1 << 16

// element splits the key ARRAY.INDEX of an element of an array. ok is false for other keys.
func element(key string) (array string, index int, ok bool) {
	array, number, ok := strings.Cut(key, ".")
	if !ok {
		return "", 0, false
	}
	index, err := strconv.Atoi(number)
	return array, index, err == nil && index >= 0 && index < mostElements && strconv.Itoa(index) == number
}

// Line is one line of a file. A blank line or comment sets only Text.
type Line struct {
	Number  int
	Keyword string // law, case, config, state, do, is
	Name    string // of the law, the case, the event
	Fields  Fields
	Text    string // comment, if any
}

func (l Line) String() string {
	s := l.Keyword
	if l.Name != "" {
		s += " " + l.Name
	}
	s += l.Fields.String()
	if l.Text != "" && s != "" {
		s += " "
	}
	return s + l.Text
}

// File is a parsed file of vectors.
type File struct {
	Law   string
	Lines []Line
}

// Parse reads a file. name is for its errors.
func Parse(name string, r io.Reader) (*File, error) {
	f := &File{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line, err := parseLine(in.Text())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		line.Number = n
		if line.Keyword == "law" {
			f.Law = line.Name
		}
		f.Lines = append(f.Lines, line)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if f.Law == "" {
		return nil, fmt.Errorf("%s: no law line", name)
	}
	return f, nil
}

func parseLine(s string) (Line, error) {
	var l Line
	if i := strings.IndexByte(s, '#'); i >= 0 {
		s, l.Text = s[:i], s[i:]
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return l, nil
	}
	l.Keyword, words = words[0], words[1:]
	switch l.Keyword {
	case "law", "case":
		l.Name = strings.Join(words, " ")
		return l, nil
	case "do":
		if len(words) == 0 {
			return l, fmt.Errorf("do without an event")
		}
		l.Name, words = words[0], words[1:]
	case "config", "state", "is":
	default:
		return l, fmt.Errorf("unknown keyword %q: want law, case, config, state, do or is", l.Keyword)
	}
	for _, w := range words {
		fields, err := parseField(w)
		if err != nil {
			return l, err
		}
		l.Fields = append(l.Fields, fields...)
	}
	return l, nil
}

func parseField(w string) (Fields, error) {
	key, text, _ := strings.Cut(w, "=")
	list, array := strings.CutPrefix(text, "[")
	list, closed := strings.CutSuffix(list, "]")
	if array != closed || key == "" {
		return nil, fmt.Errorf("%q is neither KEY=NUMBER nor KEY=[NUMBER,...]", w)
	}
	var out Fields
	for i, number := range strings.Split(list, ",") {
		value, err := strconv.ParseUint(number, 10, 64)
		switch {
		case err != nil || !array && i > 0:
			return nil, fmt.Errorf("%q is neither KEY=NUMBER nor KEY=[NUMBER,...]", w)
		case array && value != 0:
			out = append(out, Field{fmt.Sprint(key, ".", i), value})
		case !array:
			out = append(out, Field{key, value})
		}
	}
	return out, nil
}

// Write writes the file.
func (f *File) Write(w io.Writer) error {
	for _, l := range f.Lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}
