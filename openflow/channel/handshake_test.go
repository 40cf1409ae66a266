package channel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

func TestHandshake(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f := w.connect()
		h, m := f.expect(openflow.TypeHello)
		if got := m.(*openflow.Hello).Versions; h.Version != openflow.Version13 || !bytes.Equal(got, []byte{4}) {
			t.Errorf("hello of version %d with bitmap %v", h.Version, got)
		}
		f.send(0, &openflow.Hello{Versions: []uint8{1, 4}})
		h, _ = f.expect(openflow.TypeFeaturesRequest)
		f.send(9, &openflow.EchoRequest{Data: []byte("early")}) // a switch may
		f.expect(openflow.TypeEchoReply)
		f.send(h.XID+1, &openflow.FeaturesReply{DatapathID: 666}) // not what was asked
		f.send(h.XID, &openflow.FeaturesReply{DatapathID: 7, Tables: 3})
		c := <-w.handler.ups
		if c.DatapathID() != 7 || c.Features().Tables != 3 || w.server.Conn(7) != c {
			t.Errorf("features %+v", c.Features())
		}
		if got, want := w.server.Conns(), 1; len(got) != want {
			t.Errorf("%d connections, want %d", len(got), want)
		}
	})
}

// hello builds one with a header of any version, with the bitmap's words, if any.
func hello(version uint8, words ...uint32) []byte {
	b := []byte{version, 0, 0, 8, 0, 0, 0, 1}
	if len(words) > 0 {
		b = append(b, 0, 1, 0, byte(4+4*len(words)))
		for _, w := range words {
			b = append(b, byte(w>>24), byte(w>>16), byte(w>>8), byte(w))
		}
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		b[3] = byte(len(b))
	}
	return b
}

func TestHandshake_Versions(t *testing.T) {
	for name, c := range map[string]struct {
		hello []byte
		good  bool
	}{
		"1.3, bitmap":                  {hello(4, 1<<4), true},
		"1.3, no bitmap":               {hello(4), true},
		"1.5, no bitmap":               {hello(6), true}, // the lower of the two is 1.3
		"1.5 with 1.3 in its bitmap":   {hello(6, 1<<4|1<<6), true},
		"1.0 and 1.3 in its bitmap":    {hello(1, 1<<1|1<<4), true},
		"1.0, no bitmap":               {hello(1), false},
		"1.5 without 1.3 in bitmap":    {hello(6, 1<<5|1<<6), false},
		"1.3 that denies 1.3":          {hello(4, 1<<1), false},
		"empty bitmap word":            {hello(4, 0), true}, // no version at all: as if there were no bitmap
		"a bitmap of forty more words": {hello(4, append([]uint32{1 << 4}, make([]uint32, 40)...)...), true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				f := w.connect()
				f.expect(openflow.TypeHello)
				f.write(c.hello)
				if c.good {
					h, _ := f.expect(openflow.TypeFeaturesRequest)
					f.send(h.XID, &openflow.FeaturesReply{DatapathID: 1})
					<-w.handler.ups
					return
				}
				h, m := f.expect(openflow.TypeError)
				e := m.(*openflow.ErrorMessage)
				if h.XID != 1 || e.ErrorType != 0 || e.Code != 0 || len(e.Data) == 0 { // HELLO_FAILED, INCOMPATIBLE, a text
					t.Errorf("answered %v with id %d", e, h.XID)
				}
				if _, _, err := f.read(); !errors.Is(err, io.EOF) {
					t.Errorf("not closed: %v", err)
				}
				synctest.Wait()
				if got := w.server.Stats().Ended[CauseVersion]; got != 1 {
					t.Errorf("%d ends for the version, want 1", got)
				}
				has(t, w.log.String(), "cause=version")
			})
		})
	}
}

// TestHandshake_Refused sends what is no handshake. Each ends by itself, with the cause in counters and log.
func TestHandshake_Refused(t *testing.T) {
	good := hello(4, 1<<4)
	for name, c := range map[string]struct {
		bytes []byte
		cause Cause
		log   string
	}{
		"not a hello":         {encode(t, 1, &openflow.EchoRequest{}), CauseHandshake, "not a hello"},
		"TLS":                 {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1}, CauseHandshake, "TLS"},
		"HTTP":                {[]byte("GET / HTTP/1.1\r\n\r\n" + string(make([]byte, 1<<15))), CauseHandshake, "not a hello"},
		"length below 8":      {[]byte{4, 0, 0, 7, 0, 0, 0, 0}, CauseMalformed, "length"},
		"broken hello":        {[]byte{4, 0, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0}, CauseMalformed, "HELLO"},
		"hello failed":        {encode(t, 1, &openflow.ErrorMessage{}), CauseVersion, "refused the controller's hello"},
		"error for features":  {append(good, encode(t, 1, &openflow.ErrorMessage{ErrorType: 1})...), CauseHandshake, "with an error"},
		"features too short":  {append(good, 4, 6, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), CauseHandshake, "FEATURES_REPLY"},
		"messages for ever":   {append(good, bytes.Repeat(encode(t, 5, &openflow.EchoReply{}), handshakeMessages)...), CauseHandshake, "no features"},
		"auxiliary":           {append(good, encode(t, 1, &openflow.FeaturesReply{AuxiliaryID: 1})...), CauseNotAdmitted, "auxiliary"},
		"hangs up at once":    {nil, CausePeerClosed, "closed the connection"},
		"hangs up in between": {good[:5], CausePeerClosed, "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				f := w.connect()
				go func() { _ = f.hangup() }()
				_, _ = f.nc.Write(c.bytes) // may be cut short
				synctest.Wait()
				_ = f.nc.Close()
				synctest.Wait()
				st := w.server.Stats()
				if st.Ended[c.cause] != 1 || len(st.Ended) != 1 || st.Connections != 0 {
					t.Errorf("ended: %v", st.Ended)
				}
				has(t, w.log.String(), c.log)
			})
		})
	}
}

// TestHandshake_SlowLoris: a byte now and then does not keep a half-open connection.
func TestHandshake_SlowLoris(t *testing.T) {
	inWorld(t, Config{Limits: Limits{HandshakeTimeout: 3 * s1}}, func(w *world) {
		f := w.connect()
		begun := time.Now()
		go func() { _ = f.hangup() }()
		for b := hello(4, 1<<4, 0, 0, 0); ; time.Sleep(s1 - ms) {
			if _, err := f.nc.Write(b[:1]); err != nil {
				break
			}
			b = b[1:]
		}
		synctest.Wait()
		if st := w.server.Stats(); st.Ended[CauseHandshake] != 1 || st.Connections != 0 {
			t.Errorf("ended: %v", st.Ended)
		}
		if took := time.Since(begun); took > 4*s1 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestHandshake_NotAdmitted(t *testing.T) {
	admit := func(c *Conn) error {
		if c.DatapathID() != 1 {
			return errors.New("not on the list")
		}
		return nil
	}
	inWorld(t, Config{Admit: admit}, func(w *world) {
		f := w.connect()
		f.greet(2)
		f.hangup()
		w.join(1)
		synctest.Wait() // the log line follows the end of the connection
		if st := w.server.Stats(); st.Ended[CauseNotAdmitted] != 1 || st.Switches != 1 {
			t.Errorf("%+v", st)
		}
		has(t, w.log.String(), "not on the list")
	})
}

func TestHandshake_Limits(t *testing.T) {
	limits := Limits{Connections: 5, HalfOpen: 2, PerAddress: 4}
	inWorld(t, Config{Limits: limits}, func(w *world) {
		refused := func(f *fakeSwitch) {
			t.Helper()
			if got := f.hangup(); len(got) > 0 {
				t.Errorf("let in: got %v", got)
			}
		}
		a, b := w.connect(), w.connect() // both half-open
		a.expect(openflow.TypeHello)
		b.expect(openflow.TypeHello)
		refused(w.connect())
		a.greetRest(1)
		b.greetRest(2)
		w.join(3)
		w.join(4)
		refused(w.connect()) // the fifth of one address
		synctest.Wait()
		st := w.server.Stats()
		if st.Ended[CauseTooMany] != 2 || st.Switches != 4 || st.Accepted != 6 {
			t.Errorf("%+v", st)
		}
		_ = a.nc.Close()
		synctest.Wait()
		w.join(5)
		has(t, w.log.String(), "in their handshake", "connections of pipe are open")
	})
	inWorld(t, Config{Limits: Limits{Connections: 1}}, func(w *world) {
		w.join(1)
		if got := w.connect().hangup(); len(got) > 0 {
			t.Errorf("let in: got %v", got)
		}
	})
}

// TestHandshake_PushedOut: who holds all half-open connections loses one of them to a switch of another address.
func TestHandshake_PushedOut(t *testing.T) {
	s, address, _, h, stop := loopback(t, Config{Limits: Limits{HalfOpen: 4}})
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		nc, err := d.Dial("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
	var loris []*fakeSwitch
	for range 4 {
		f := &fakeSwitch{t: t, nc: dial("127.0.0.2")}
		f.expect(openflow.TypeHello)
		loris = append(loris, f)
	}
	if got := (&fakeSwitch{t: t, nc: dial("127.0.0.2")}).hangup(); len(got) > 0 {
		t.Errorf("a fifth of the same address was let in: %v", got)
	}
	f := &fakeSwitch{t: t, nc: dial("127.0.0.1")}
	f.greet(7)
	<-h.ups
	loris[0].hangup() // the oldest
	loris[1].greetRest(8)
	<-h.ups
	stop()
	if st := s.Stats(); st.Ended[CauseTooMany] != 2 {
		t.Errorf("%+v", st)
	}
}

func (f *fakeSwitch) greetRest(id uint64) {
	f.send(0, &openflow.Hello{})
	h, _ := f.expect(openflow.TypeFeaturesRequest)
	f.send(h.XID, &openflow.FeaturesReply{DatapathID: id})
}
