package inband

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// Each byte of the papers' messages. The checksums and tags are calculated by Python.
func TestIP_Vectors(t *testing.T) {
	for _, row := range []struct {
		form Form
		f    Frame
		want string
	}{
		{
			IP, Frame{To: host, From: controller, Source: [4]byte{10, 0, 0, 9}, Run: 1, Counter: 2, Command: []byte("command")},
			"020000000001 020000000009 0800 45 00 003f 0000 0000 ff 8f b127 0a000009 ffffffff 01 00 0007 0000000000000001 0000000000000002 636f6d6d616e64 d92c670c11f6d29110193c02fb4e6499",
		},
		{
			IPID, Frame{To: host, From: controller, VM: [4]byte{10, 0, 0, 1}, Marks: 65535, Run: 1, Counter: 2, Command: []byte{7}},
			"020000000001 020000000009 0800 45 00 0039 ffff 0000 ff 8f b135 00000000 0a000001 01 00 0001 0000000000000001 0000000000000002 07 c8b1f5a48c120831148eb8a58e90262d",
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(row.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewTagger(row.form, testKey).Append([]byte("before"), &row.f)
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: %v\n%x, want\n%x", row.form, err, got[len("before"):], want)
		}
		f, why := NewTagger(row.form, testKey).Decode(want)
		if why != Taken || f.VM != row.f.VM || f.Marks != row.f.Marks || f.Source != row.f.Source || !bytes.Equal(f.Command, row.f.Command) {
			t.Errorf("%s: read %+v, %q", row.form, f, why)
		}
	}
}

// A changed bit anywhere is refused, except in the type of service and the checksum, which switches change. No form takes another's frames.
func TestIP_Refused(t *testing.T) {
	frames := map[Form]Frame{
		Ethernet: {To: host, Type: On, Run: 5, Counter: 1, Command: []byte("command")},
		IP:       {To: host, Run: 5, Counter: 1, Command: []byte("command")},
		IPID:     {To: host, Run: 5, Counter: 1, Command: []byte("command"), VM: [4]byte{10, 0, 0, 1}, Marks: 3},
	}
	for form, f := range frames {
		b, err := NewTagger(form, testKey).Append(nil, &f)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range Forms() {
			if _, why := NewTagger(other, testKey).Decode(b); (why == Taken) != (other == form) {
				t.Errorf("%s of %s: %q", other, form, why)
			}
		}
		if form == Ethernet {
			continue // TestFrame_Forged
		}
		end := ethernetBytes + ipBytes + commandAt + len("command") + tagBytes
		for bit := range end * 8 {
			at := bit / 8
			free := at == tosAt || at == checksumAt || at == checksumAt+1
			b[at] ^= 1 << (bit % 8)
			if _, why := NewTagger(form, testKey).Decode(b); (why == Taken) != free {
				t.Errorf("%s, bit %d of byte %d: %q", form, bit%8, at, why)
			}
			b[at] ^= 1 << (bit % 8)
		}
		for n := range end {
			if _, why := NewTagger(form, testKey).Decode(b[:n]); why == Taken {
				t.Errorf("%s: the first %d bytes are taken", form, n)
			}
		}
		b[ttlAt]--
		if _, why := NewTagger(form, testKey).Decode(b); why != Routed {
			t.Errorf("%s behind a router: %q", form, why)
		}
	}
	for form, f := range map[Form]Frame{IP: frames[IPID], IPID: frames[IP]} {
		if _, err := NewTagger(form, testKey).Append(nil, &f); err == nil {
			t.Errorf("%s with %d marks is sent", form, f.Marks)
		}
	}
}
