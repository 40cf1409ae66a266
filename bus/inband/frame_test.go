package inband

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

var (
	host, controller = MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 9}
	testKey          = Key{1, 2, 3}
)

// Each byte of a frame, put together by hand. The tags are those
// of Python's hmac, over the bytes before them.
func TestFrame_Vectors(t *testing.T) {
	for _, row := range []struct {
		name string
		f    Frame
		want string
	}{
		{
			"ON", Frame{To: host, From: controller, Type: On, Run: 0x1122334455667788, Counter: 7, Command: []byte{0xc0, 0xff, 0xee}},
			"020000000001 020000000009 7a00 01 00 0003 1122334455667788 0000000000000007 c0ffee" + tagOn + strings.Repeat("00", 7),
		},
		{
			"ON, shift 14", Frame{To: host, From: controller, Type: On + 14, Run: 1, Counter: 1 << 40, Command: []byte("abcdefghijkl")},
			"020000000001 020000000009 7a0e 01 00 000c 0000000000000001 0000010000000000 6162636465666768696a6b6c" + tagShift,
		},
		{
			"OFF", Frame{To: host, From: controller, Type: Off, Run: 1, Counter: 2, Command: []byte{1}},
			"020000000001 020000000009 7a0f 01 00 0001 0000000000000001 0000000000000002 01" + tagOff + strings.Repeat("00", 9),
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(row.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewTagger(Ethernet, testKey).Append([]byte("before"), &row.f)
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: %v\n%x, want\n%x", row.name, err, got[len("before"):], want)
		}
		f, why := NewTagger(Ethernet, testKey).Decode(want)
		if why != Taken || f.To != row.f.To || f.From != row.f.From || f.Type != row.f.Type || f.Run != row.f.Run || f.Counter != row.f.Counter || !bytes.Equal(f.Command, row.f.Command) {
			t.Errorf("%s: read %+v, %q", row.name, f, why)
		}
	}
}

const (
	tagOn    = "9776df43fa426b62bb3e80e9cdfda0f8"
	tagShift = "0a342a23fd70ba4873593ab532f7da5b"
	tagOff   = "92439184d64891e87d19498aaf007ac4"
)

// A key of another agent, and one bit changed anywhere before the padding: refused.
func TestFrame_Forged(t *testing.T) {
	b, err := NewTagger(Ethernet, testKey).Append(nil, &Frame{To: host, From: controller, Type: On, Run: 5, Counter: 1, Command: []byte("some command")})
	if err != nil {
		t.Fatal(err)
	}
	end := commandAt + len("some command") + tagBytes
	for bit := range end * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if _, why := NewTagger(Ethernet, testKey).Decode(b); why != Forged && why != Malformed {
			t.Errorf("bit %d of byte %d: %q", bit%8, bit/8, why)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range end {
		if _, why := NewTagger(Ethernet, testKey).Decode(b[:n]); why == Taken {
			t.Errorf("the first %d bytes are taken", n)
		}
	}
	for name, k := range map[string]Key{"no key": {}, "another agent's": testKey.Of("h8"), "the controllers'": testKey} {
		if _, why := NewTagger(Ethernet, testKey.Of("h7")).Decode(append([]byte(nil), mustAppend(t, k)...)); why != Forged {
			t.Errorf("%s: %q", name, why)
		}
	}
	if _, why := NewTagger(Ethernet, testKey.Of("h7")).Decode(mustAppend(t, testKey.Of("h7"))); why != Taken {
		t.Errorf("its own: %q", why)
	}
}

func mustAppend(tb testing.TB, k Key) []byte {
	tb.Helper()
	b, err := NewTagger(Ethernet, k).Append(nil, &Frame{To: host, Type: On, Run: 5, Counter: 1, Command: []byte("c")})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Commands that do not fit, and EtherTypes of others, are not sent.
func TestFrame_Limits(t *testing.T) {
	for _, f := range []Frame{
		{Type: On}, {Type: On, Command: make([]byte, MaxCommand+1)}, {Type: On - 1, Command: []byte{1}}, {Type: Off + 1, Command: []byte{1}}, {Type: 0x0800, Command: []byte{1}},
	} {
		if _, err := NewTagger(Ethernet, testKey).Append(nil, &f); err == nil {
			t.Errorf("EtherType %#x with %d bytes is sent", f.Type, len(f.Command))
		}
	}
	b, err := NewTagger(Ethernet, testKey).Append(nil, &Frame{Type: Off, Command: make([]byte, MaxCommand)})
	if err != nil || len(b) != maxFrame-ipBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Frames that are replayed, late, of another machine or of an earlier run.
func TestReceiver(t *testing.T) {
	r := NewReceiver(Ethernet, host, testKey)
	for i, row := range []struct {
		run, counter uint64
		to           MAC
		want         Reason
	}{
		{1, 5, host, Taken}, {1, 5, host, Replayed}, {1, 4, host, Replayed}, {1, 7, host, Taken}, {1, 6, host, Replayed},
		{1, 8, MAC{2, 2, 2, 2, 2, 2}, Elsewhere}, {1, 8, host, Taken},
		{2, 1, host, Taken}, {1, 8, host, Replayed}, {1, 9, host, Taken}, {2, 1, host, Replayed}, {1, 1<<64 - 1, host, Taken}, {1, 1, host, Replayed},
	} {
		b, err := NewTagger(Ethernet, testKey).Append(nil, &Frame{To: row.to, Type: On, Run: row.run, Counter: row.counter, Command: []byte{byte(i)}})
		if err != nil {
			t.Fatal(err)
		}
		f, why := r.Take(b)
		if why != row.want || why == Taken && !bytes.Equal(f.Command, []byte{byte(i)}) {
			t.Errorf("row %d: %q with %x, want %q", i, why, f.Command, row.want)
		}
	}
	for run := range uint64(1000) {
		b, _ := NewTagger(Ethernet, testKey).Append(nil, &Frame{To: host, Type: On, Run: run, Counter: 3, Command: []byte{1}})
		r.Take(b)
	}
	if len(r.runs) != maxRuns {
		t.Errorf("%d runs are remembered", len(r.runs))
	}
}

// The decoder of each form takes only what Append makes, and never reads beyond the frame.
func FuzzFrame(f *testing.F) {
	f.Add(mustAppend(f, testKey))
	f.Add([]byte{})
	for _, of := range []Form{IP, IPID} {
		frame := Frame{To: host, Run: 5, Counter: 1, Command: []byte("c")}
		if of == IPID {
			frame.Marks = 7
		}
		b, err := NewTagger(of, testKey).Append(nil, &frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, form := range Forms() {
			tagger := NewTagger(form, testKey)
			read, why := tagger.Decode(b)
			if why != Taken {
				continue
			}
			again, err := NewTagger(form, testKey).Append(nil, &read)
			end := tagger.headers() + commandAt + len(read.Command) + tagBytes
			if err != nil || !bytes.Equal(tagger.tag(again[:end-tagBytes]), again[end-tagBytes:end]) || !bytes.Equal(again[end-tagBytes:end], b[end-tagBytes:end]) {
				t.Errorf("%s: %x was taken as %+v, which is %x, %v", form, b, read, again, err)
			}
		}
	})
}

// BenchmarkFrame is the cost of a tag at both ends.
func BenchmarkFrame(b *testing.B) {
	k := NewTagger(Ethernet, testKey)
	f := Frame{To: host, From: controller, Type: On, Run: 1, Command: make([]byte, 120)}
	var frame []byte
	for name, work := range map[string]func(){
		"append": func() { frame, _ = k.Append(frame[:0], &f) },
		"decode": func() { k.Decode(frame) },
	} {
		frame, _ = k.Append(frame[:0], &f)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}
