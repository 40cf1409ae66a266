package law

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestUnitsRead(t *testing.T) {
	for _, c := range []struct {
		text string
		into encoding.TextUnmarshaler
		want int64
	}{
		{"200Mbit", new(Rate), 200_000_000},
		{"1.5Gbit", new(Rate), 1_500_000_000},
		{"0.001kbit", new(Rate), 1},
		{"11.5KB", new(Bytes), 11_500},
		{"11.5KiB", new(Bytes), 11_776},
		{"1 MB", new(Bytes), 1_000_000},
		{"0B", new(Bytes), 0},
		{"200us", new(Duration), 200_000},
		{"0.2ms", new(Duration), 200_000},
		{"20s", new(Duration), 20_000_000_000},
		{"7ns", new(Duration), 7},
	} {
		if err := c.into.UnmarshalText([]byte(c.text)); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got int64
		switch v := c.into.(type) {
		case *Rate:
			got = int64(*v)
		case *Bytes:
			got = int64(*v)
		case *Duration:
			got = int64(*v)
		}
		if got != c.want {
			t.Errorf("%s is %d, want %d", c.text, got, c.want)
		}
	}
}

func TestUnitsRefuse(t *testing.T) {
	for _, c := range []struct {
		text string
		into encoding.TextUnmarshaler
		want string
	}{
		{"200", new(Rate), "needs a unit: a number and Gbit, Mbit, kbit"},
		{"200mbit", new(Rate), `unknown unit "mbit"; did you mean 200Mbit?`}, // the case of a unit matters
		{"200Mbits", new(Rate), `rate "200Mbits": unknown unit "Mbits"; did you mean 200Mbit?`},
		{"200 Mbits", new(Rate), "did you mean 200Mbit?"},
		{"1.5Gbps", new(Rate), "did you mean 1.5Gbit?"},
		{"10Gb/s", new(Rate), "did you mean 10Gbit?"},
		{"10Gbit/s", new(Rate), "did you mean 10Gbit?"},
		{"10G", new(Rate), "did you mean 10Gbit?"},
		{"10K", new(Rate), "did you mean 10kbit?"},
		{"200MB", new(Rate), `unknown unit "MB": a number and Gbit, Mbit, kbit`}, // bytes, not bits
		{"200bit", new(Rate), `unknown unit "bit": a number and`},
		{"200foo", new(Rate), `unknown unit "foo": a number and`},
		{"125kB", new(Bytes), "did you mean 125KB?"},
		{"125kb", new(Bytes), "did you mean 125KB?"},
		{"125k", new(Bytes), "did you mean 125KB?"},
		{"125bytes", new(Bytes), "did you mean 125B?"},
		{"1mib", new(Bytes), "did you mean 1MiB?"},
		{"10sec", new(Duration), "did you mean 10s?"},
		{"10msec", new(Duration), "did you mean 10ms?"},
		{"10\u00b5s", new(Duration), "did you mean 10us?"},
		{"10min", new(Duration), `unknown unit "min": a number and`},
		{"83packets", new(Limit), "did you mean 83pkt?"},
		{"125kB", new(Limit), "did you mean 125KB?"},
		{"Mbit", new(Rate), "is not a number"},
		{"-1Mbit", new(Rate), "is below 0"},
		{"0.0001kbit", new(Rate), "finer than 1 bit/s"},
		{"1e3KB", new(Bytes), "is not a number"},
		{"0x10KB", new(Bytes), "is not a number"},
		{"+1KB", new(Bytes), "is not a number"},
		{"1.KB", new(Bytes), "is not a number"},
		{".5KB", new(Bytes), "is not a number"},
		{"1  KB", new(Bytes), "is not a number"},
		{"1.5B", new(Bytes), "finer than 1 B"},
		{"NaNs", new(Duration), "is not a number"},
		{"Infs", new(Duration), "is not a number"},
		{"1m", new(Duration), `unknown unit "m": a number and ns, us, ms, s`},
		{"0.5ns", new(Duration), "finer than 1 ns"},
		{"9999999999999s", new(Duration), "is too large"},
		{strings.Repeat("9", 40) + "s", new(Duration), "too many digits"},
		{"", new(Duration), "needs a unit"},
		{"20", new(Limit), "or pkt"},
		{"1.5pkt", new(Limit), "finer than"},
	} {
		err := c.into.UnmarshalText([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want ...%s...", c.text, err, c.want)
		}
	}
}

func TestLimitCountsAPacketAs1500Bytes(t *testing.T) {
	var l Limit
	if err := l.UnmarshalText([]byte("83pkt")); err != nil || !l.Packets || l.N != 83 {
		t.Fatalf("83pkt is %+v, %v", l, err)
	}
	if l.Bytes() != 124_500 {
		t.Errorf("83 packets are %d bytes, want 124500", l.Bytes())
	}
	if err := l.UnmarshalText([]byte("125KB")); err != nil || l.Packets || l.Bytes() != 125_000 {
		t.Errorf("125KB is %+v, %v", l, err)
	}
}

// Text -> value -> text -> value gives the same value for every value of the type.
func TestUnitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(
			rapid.Int64Range(0, maxUnits),
			rapid.Map(rapid.Int64Range(0, 1_000_000), func(n int64) int64 { return n * 1000 }),
		).Draw(t, "n")
		type all struct {
			R Rate
			B Bytes
			D Duration
			L Limit
		}
		in := all{Rate(n), Bytes(n), Duration(n), Limit{N: n, Packets: rapid.Bool().Draw(t, "pkt")}}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out all
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if in != out {
			t.Fatalf("%+v became %s became %+v", in, text, out)
		}
	})
}
