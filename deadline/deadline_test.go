package deadline

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

const good = `{"source":"10.0.0.1:40000","destination":"10.0.0.9:80","within_ms":300.5,"bytes":8000000,"value":3}`

func TestDecode(t *testing.T) {
	d, err := Decode([]byte(good))
	want := Declaration{netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.9:80"), 300500 * time.Microsecond, 8e6, 3}
	if err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = Decode([]byte(`{"within_ms":1,"source":"[::ffff:10.0.0.1]:1","destination":"10.0.0.9:80"}`))
	if want := (Declaration{Source: netip.MustParseAddrPort("10.0.0.1:1"), Destination: netip.MustParseAddrPort("10.0.0.9:80"), Within: time.Millisecond}); err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
}

// A socket, or an address with or without a port. Without a socket at the default path it is the metadata address.
func TestTarget(t *testing.T) {
	t.Setenv(SocketVariable, "")
	for socket, want := range map[string]string{
		"/x/deadline.sock":                "unix /x/deadline.sock",
		"http://169.254.169.253":          "tcp 169.254.169.253:80",
		"http://169.254.169.253:8080/":    "tcp 169.254.169.253:8080",
		"http://[fe80::a9fe:a9fd%eth0]":   "tcp [fe80::a9fe:a9fd%eth0]:80",
		"http://[fe80::a9fe:a9fd%eth0]:8": "tcp [fe80::a9fe:a9fd%eth0]:8",
		"":                                "tcp 169.254.169.253:80",
	} {
		if network, address := target(Socket(socket)); network+" "+address != want {
			t.Errorf("%q: %s %s, want %s", socket, network, address, want)
		}
	}
}

func TestDecode_Refuses(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, c := range []struct{ text, says string }{
		{``, "not a JSON object"},
		{`[]`, "not a JSON object"},
		{`null`, "not a JSON object"},
		{good + `{}`, "more behind"},
		{good + ` x`, "more behind"},
		{good[:len(good)-1], "EOF"},
		{with(`"bytes"`, `"Bytes"`), `"Bytes" is unknown`},
		{with(`"bytes":8000000`, `"value":3`), `"value" is there twice`},
		{with(`"source":"10.0.0.1:40000",`, ``), "source is missing"},
		{with(`"destination":"10.0.0.9:80",`, ``), "destination is missing"},
		{with(`"within_ms":300.5,`, ``), "within_ms is missing"},
		{with(`300.5`, `0`), "above 0"},
		{with(`300.5`, `-1`), "above 0"},
		{with(`300.5`, `1e-9`), "above 0"},
		{with(`300.5`, `3600001`), "at most 3600000"},
		{with(`300.5`, `1e400`), "within_ms"},
		{with(`300.5`, `"300"`), "within_ms"},
		{with(`300.5`, `null`), "within_ms"},
		{with(`300.5`, `{"a":1}`), "within_ms"},
		{with(`8000000`, `0`), "whole number from 1"},
		{with(`8000000`, `1.5`), "whole number from 1"},
		{with(`8000000`, `1125899906842625`), "whole number from 1"},
		{with(`:3}`, `:101}`), "from 1 to 100"},
		{with(`10.0.0.1:40000`, `10.0.0.1`), "address and a port"},
		{with(`10.0.0.1:40000`, `10.0.0.1:0`), "address and a port"},
		{with(`10.0.0.1:40000`, `0.0.0.0:1`), "address and a port"},
		{with(`10.0.0.1:40000`, `host:1`), "address and a port"},
		{with(`10.0.0.1:40000`, `[fe80::1%eth0]:1`), "address and a port"},
		{with(`10.0.0.1:40000`, `[fd00::1]:1`), "one family"},
		{with(`10.0.0.1:40000`, `10.0.0.9:80`), "the same"},
		{`{"` + strings.Repeat("a", MaxBody) + `":1}`, "at most 1024"},
	} {
		if _, err := Decode([]byte(c.text)); !errors.Is(err, ErrMalformed) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%.80s: %v, want %q", c.text, err, c.says)
		}
	}
}

func TestDeclared_JSON(t *testing.T) {
	in := Declared{7, Declaration{netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.9:80"), 5 * time.Millisecond, 10, 0}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Declared
	if err := json.Unmarshal(text, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%s: %+v, %v", text, out, err)
	}
}

// The decoder takes anything. A declaration that it accepts is in its ranges, and is the same after it was written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"source":"[fd00::1]:1","destination":"[fd00::2]:2","within_ms":1}`))
	f.Add([]byte(`{"within_ms":1e-7,"within_ms":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Decode(text)
		if err != nil {
			if d != (Declaration{}) || !errors.Is(err, ErrMalformed) {
				t.Fatalf("%+v, %v", d, err)
			}
			return
		}
		if d.Within <= 0 || d.Within > MaxWithin || d.Bytes > MaxBytes || d.Value > MaxValue || !d.Source.IsValid() || !d.Destination.IsValid() ||
			d.Source.Port() == 0 || d.Destination.Port() == 0 || d.Source.Addr().Is4() != d.Destination.Addr().Is4() {
			t.Fatalf("%s: accepted %+v", text, d)
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := Decode(again); err != nil || e != d {
			t.Fatalf("%s: %+v, again %+v: %v", text, d, e, err)
		}
	})
}
