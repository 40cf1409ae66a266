package bus

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"weir/bus/weirv1"
	"weir/law"
)

// heardMarks is a message that an agent got from another.
type heardMarks struct {
	from  string
	marks *weirv1.PairMarks
}

func (k *kit) marksAgent(name, url string, incarnation uint64) (*Agent, chan heardMarks) {
	k.t.Helper()
	out := make(chan heardMarks, 100)
	a, err := NewAgent(AgentConfig{
		Client: k.client(k.enrol("agent/"+name), url), Buckets: 4, Terms: TermFile{filepath.Join(k.t.TempDir(), "term")}, Clock: clock,
		Obey: func(*weirv1.Command, []law.Grant) {}, incarnation: incarnation,
		Marks: func(from string, m *weirv1.PairMarks) { out <- heardMarks{from, m} },
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(a.Close)
	until(k.t, "the connection of "+name, a.conn.Connected)
	flush(k.t, a.conn)
	return a, out
}

func marksOf(packets uint64) *weirv1.PairMarks {
	return &weirv1.PairMarks{Pairs: []*weirv1.MarkedPair{{Source: []byte{10, 0, 0, 1}, Vm: 4, Packets: packets}}}
}

// Marks reach the agent that they are for, with the name of the one that sent them, and no other. An agent cannot speak for another: the
// bus refuses the subject. A message that is malformed, or comes after a later one, has no effect and is counted; a restarted agent
// begins anew.
func TestMarks_OnlyForItself(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	one, _ := k.marksAgent("h1", s.URL(), 5)
	two, toTwo := k.marksAgent("h2", s.URL(), 0)
	_, toThree := k.marksAgent("h3", s.URL(), 0)
	if err := one.SendMarks("h2", marksOf(7)); err != nil {
		t.Fatal(err)
	}
	if got := <-toTwo; got.from != "h1" || got.marks.GetPairs()[0].GetPackets() != 7 {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"", "h2.x", "*", ">"} {
		if err := one.SendMarks(wrong, marksOf(1)); err == nil {
			t.Errorf("marks go to %q", wrong)
		}
	}
	forged, err := proto.Marshal(&weirv1.PairMarks{Origin: &weirv1.Origin{Incarnation: 1, Sequence: 1}, Pairs: marksOf(1000).GetPairs()})
	if err != nil {
		t.Fatal(err)
	}
	before := one.conn.Refused()
	if err := one.conn.nc.Publish("weir.v1.mrk.h3.h2", forged); err != nil {
		t.Fatal(err)
	}
	until(t, "the refusal of another's name", func() bool { return one.conn.Refused() > before })
	again, err := proto.Marshal(&weirv1.PairMarks{Origin: &weirv1.Origin{Incarnation: 5, Sequence: 1}, Pairs: marksOf(1000).GetPairs()})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{again, []byte("\xff\xff no protobuf")} {
		if err := one.conn.nc.Publish("weir.v1.mrk.h1.h2", bad); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the counts of refused marks", func() bool {
		c := two.MarksCounts()
		return c["late"] == 1 && c["malformed"] == 1
	})
	next, _ := k.marksAgent("h1", s.URL(), 6)
	if err := next.SendMarks("h2", marksOf(8)); err != nil {
		t.Fatal(err)
	}
	if got := <-toTwo; got.from != "h1" || got.marks.GetPairs()[0].GetPackets() != 8 {
		t.Errorf("after its restart: %+v", got)
	}
	if len(toTwo)+len(toThree) != 0 || two.MarksCounts()["taken"] != 2 {
		t.Errorf("%d and %d more messages, %v", len(toTwo), len(toThree), two.MarksCounts())
	}
}
