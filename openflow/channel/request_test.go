package channel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

func TestRequest(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		// Two questions at once, answered the other way round.
		first, err := c.Ask(&openflow.GetConfigRequest{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := c.Ask(&openflow.BarrierRequest{})
		if err != nil {
			t.Fatal(err)
		}
		h1, _ := f.expect(openflow.TypeGetConfigRequest)
		h2, _ := f.expect(openflow.TypeBarrierRequest)
		f.send(h2.XID, &openflow.BarrierReply{})
		f.send(h1.XID, &openflow.GetConfigReply{MissSendLen: 42})
		if m, err := second.Wait(w.t.Context()); err != nil || m.MessageType() != openflow.TypeBarrierReply {
			t.Errorf("%v, %v", m, err)
		}
		m, err := first.Wait(w.t.Context())
		if r, ok := m.(*openflow.GetConfigReply); err != nil || !ok || r.MissSendLen != 42 {
			t.Errorf("%v, %v", m, err)
		}
		if h1.XID != first.XID() || c.Stats().Outstanding != 0 {
			t.Errorf("id %d, want %d; %d outstanding", h1.XID, first.XID(), c.Stats().Outstanding)
		}
		for _, m := range []openflow.Message{&openflow.SetAsync{}, &openflow.EchoReply{}} {
			if _, err := c.Ask(m); !errors.Is(err, ErrMessage) {
				t.Errorf("%s: %v, want ErrMessage", m.MessageType(), err)
			}
		}
		if _, err := c.Request(w.t.Context(), &openflow.MultipartRequest{}); !errors.Is(err, ErrMessage) {
			t.Errorf("%v, want ErrMessage", err)
		}
	})
}

func TestRequest_Fails(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(f *fakeSwitch, xid uint32)
		check  func(err error) bool
	}{
		"an error": {
			func(f *fakeSwitch, xid uint32) { f.send(xid, &openflow.ErrorMessage{ErrorType: 1, Code: 7}) },
			func(err error) bool {
				e := new(RemoteError)
				return errors.As(err, &e) && e.Message.Code == 7 && e.XID > 0
			}},
		"another kind": {
			func(f *fakeSwitch, xid uint32) { f.send(xid, &openflow.FeaturesReply{}) },
			func(err error) bool {
				e := new(UnexpectedReplyError)
				return errors.As(err, &e) && *e == UnexpectedReplyError{openflow.TypeBarrierReply, openflow.TypeFeaturesReply}
			}},
		"bytes too many": {
			func(f *fakeSwitch, xid uint32) { f.write([]byte{4, 21, 0, 9, 0, 0, byte(xid >> 8), byte(xid), 1}) },
			func(err error) bool { return errors.Is(err, openflow.ErrLength) }},
		"nothing": {
			func(*fakeSwitch, uint32) {},
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"hang up": {
			func(f *fakeSwitch, _ uint32) { _ = f.nc.Close() },
			func(err error) bool {
				e := new(CloseError)
				return errors.As(err, &e) && e.Cause == CausePeerClosed
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				f, conn := w.join(1)
				done := make(chan error, 1)
				begun := time.Now()
				go func() { done <- conn.Barrier(w.t.Context()) }()
				h, _ := f.expect(openflow.TypeBarrierRequest)
				c.answer(f, h.XID)
				f.live(nil)
				if err := <-done; !c.check(err) {
					t.Error(err)
				}
				if took := time.Since(begun); took > 10*s1 {
					t.Errorf("it took %v", took)
				}
				if n := conn.Stats().Outstanding; n != 0 {
					t.Errorf("%d outstanding", n)
				}
			})
		})
	}
}

// TestRequest_Late: answers after the deadline, twice, or to nothing at all are counted and do no harm.
func TestRequest_Late(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		ctx, cancel := context.WithTimeout(w.t.Context(), s1)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- c.Barrier(ctx) }()
		late, _ := f.expect(openflow.TypeBarrierRequest)
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() { done <- c.Barrier(w.t.Context()) }()
		next, _ := f.expect(openflow.TypeBarrierRequest)
		for _, xid := range []uint32{late.XID, 0, 0xdeadbeef, next.XID, next.XID} {
			f.send(xid, &openflow.BarrierReply{})
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if st := c.Stats(); st.Strange != 4 || c.Err() != nil {
			t.Errorf("%d strange, want 4: %v", st.Strange, c.Err())
		}
	})
}

// TestRequest_Forgotten: a future that nobody waits for does not stay for ever.
func TestRequest_Forgotten(t *testing.T) {
	inWorld(t, Config{Limits: Limits{Outstanding: 3}}, func(w *world) {
		f, c := w.join(1)
		go func() { // answers echo requests only
			for {
				h, _, err := f.read()
				if err != nil {
					return
				}
				if h.Type == openflow.TypeEchoRequest {
					_, _ = f.nc.Write(encode(t, h.XID, &openflow.EchoReply{})) // the test may be over
				}
			}
		}()
		var last *Call
		for range 3 {
			call, err := c.Ask(&openflow.BarrierRequest{})
			if err != nil {
				t.Fatal(err)
			}
			last = call
		}
		if _, err := c.Ask(&openflow.BarrierRequest{}); !errors.Is(err, ErrOutstanding) {
			t.Errorf("%v, want ErrOutstanding", err)
		}
		<-last.Done()
		if _, err := last.Wait(w.t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := c.Ask(&openflow.BarrierRequest{}); err != nil {
			t.Error(err)
		}
	})
}

func portStats(ports int) openflow.PortStatsReply { return make(openflow.PortStatsReply, ports) }

func part(more bool, ports int) openflow.Message {
	return &openflow.MultipartReply{Type: openflow.MultipartPortStats, More: more, Body: portStats(ports)}
}

var askPorts = &openflow.MultipartRequest{Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny}}

func TestMultipart(t *testing.T) {
	type outcome struct {
		parts []*openflow.MultipartReply
		err   error
	}
	limits := Limits{ReplyParts: 5, ReplyBytes: 20 * (8 + 10*112)}
	inWorld(t, Config{Limits: limits}, func(w *world) {
		f, c := w.join(1)
		f2 := make(chan outcome, 10)
		ask := func() uint32 {
			go func() {
				p, err := c.Multipart(w.t.Context(), askPorts)
				f2 <- outcome{p, err}
			}()
			h, _ := f.expect(openflow.TypeMultipartRequest)
			return h.XID
		}
		// Two answers whose parts come by turns.
		a, b := ask(), ask()
		f.send(a, part(true, 1))
		f.send(b, part(true, 11))
		f.send(a, part(true, 2))
		f.send(a, part(false, 3))
		got := <-f2
		var sizes []string
		for _, p := range got.parts {
			sizes = append(sizes, fmt.Sprint(len(p.Body.(openflow.PortStatsReply))))
		}
		if s := strings.Join(sizes, " "); got.err != nil || s != "1 2 3" {
			t.Errorf("parts of %s ports, %v", s, got.err)
		}
		f.send(b, part(false, 12))
		if got := <-f2; len(got.parts) != 2 || got.err != nil {
			t.Errorf("%d parts, %v", len(got.parts), got.err)
		}
		// More parts than allowed: the rest is nobody's.
		xid := ask()
		for range 8 {
			f.send(xid, part(true, 1))
		}
		if got := <-f2; !errors.Is(got.err, ErrReplySize) {
			t.Errorf("%v, want ErrReplySize", got.err)
		}
		// Another kind than was asked for.
		f.send(ask(), &openflow.MultipartReply{Type: openflow.MultipartPortDesc})
		if got := <-f2; !errors.As(got.err, new(*UnexpectedReplyError)) {
			t.Errorf("%v, want UnexpectedReplyError", got.err)
		}
		// An error after the first part.
		xid = ask()
		f.send(xid, part(true, 1))
		f.send(xid, &openflow.ErrorMessage{ErrorType: 1, Code: 13})
		if got := <-f2; !errors.As(got.err, new(*RemoteError)) {
			t.Errorf("%v, want RemoteError", got.err)
		}
		// A part that cannot be read, and one without a head.
		for _, n := range []byte{17, 12} {
			xid = ask()
			f.write(append([]byte{4, 19, 0, n, 0, 0, 0, byte(xid), 0, 4, 0, 0, 0, 0, 0, 0, 0}[:min(n, 17)], make([]byte, n-min(n, 17))...))
			if got := <-f2; !errors.As(got.err, new(*openflow.DecodeError)) {
				t.Errorf("%v, want DecodeError", got.err)
			}
		}
		synctest.Wait()
		c.mu.Lock()
		if c.gathered != 0 || c.asked != 0 {
			t.Errorf("%d bytes gathered and %d questions after the last answer", c.gathered, c.asked)
		}
		c.mu.Unlock()
		if n := c.Stats().Strange; n != 2 { // two of the eight parts
			t.Errorf("%d strange, want 2", n)
		}
	})
}

// TestMultipart_Bytes: all answers that are not yet whole share one bound.
func TestMultipart_Bytes(t *testing.T) {
	const most = 20 * (8 + 10*112)
	inWorld(t, Config{Limits: Limits{ReplyBytes: most}}, func(w *world) {
		f, c := w.join(1)
		errs := make(chan error, 3)
		var xids []uint32
		for range 3 {
			go func() {
				_, err := c.Multipart(w.t.Context(), askPorts)
				errs <- err
			}()
			h, _ := f.expect(openflow.TypeMultipartRequest)
			xids = append(xids, h.XID)
		}
		for i := range 20 {
			f.send(xids[i%2], part(true, 10))
		}
		synctest.Wait()
		c.mu.Lock()
		gathered := c.gathered
		c.mu.Unlock()
		if gathered != most {
			t.Errorf("%d bytes gathered, want %d", gathered, most)
		}
		f.send(xids[2], part(true, 1))
		if err := <-errs; !errors.Is(err, ErrReplySize) {
			t.Errorf("%v, want ErrReplySize", err)
		}
		f.send(xids[0], part(false, 0))
		if err := <-errs; !errors.Is(err, ErrReplySize) { // 8 bytes too many
			t.Errorf("%v, want ErrReplySize", err)
		}
		f.send(xids[1], part(false, 0))
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}

func TestPoll(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		var got []string
		each := func(body []byte, last bool, err error) {
			if err != nil {
				got = append(got, fmt.Sprintf("%v %v", last, errors.Is(err, context.DeadlineExceeded)))
				return
			}
			it, err := openflow.IteratePortStats(body)
			if err != nil {
				t.Error(err)
			}
			got = append(got, fmt.Sprint(it.Len(), " ", last))
		}
		for range 2 {
			if err := c.Poll(askPorts, each); err != nil {
				t.Fatal(err)
			}
		}
		h, _ := f.expect(openflow.TypeMultipartRequest)
		f.send(h.XID, part(true, 48))
		f.send(h.XID, part(false, 3))
		f.send(h.XID, part(false, 3)) // one too many
		f.live(nil)
		time.Sleep(15 * s1) // the second is never answered
		synctest.Wait()
		if s := strings.Join(got, ", "); s != "48 false, 3 true, true true" {
			t.Error(s)
		}
		if st := c.Stats(); st.Outstanding != 0 || st.Strange != 1 {
			t.Errorf("%d outstanding, %d strange", st.Outstanding, st.Strange)
		}
	})
}

func TestApply(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		f.become(c)
		flows := make([]openflow.Message, 40)
		for i := range flows {
			flows[i] = &openflow.FlowMod{Cookie: uint64(i), BufferID: openflow.NoBuffer}
		}
		done := make(chan error, 1)
		go func() { done <- c.Apply(w.t.Context(), flows...) }()
		for i := range flows {
			h, _ := f.expect(openflow.TypeFlowMod)
			if i == 3 || i >= 20 {
				f.send(h.XID, &openflow.ErrorMessage{ErrorType: openflow.ErrorFlowModFailed, Code: uint16(i), Data: []byte("why")})
			}
		}
		h, _ := f.expect(openflow.TypeBarrierRequest)
		f.send(h.XID, &openflow.BarrierReply{})
		err := <-done
		var first *RemoteError
		if !errors.As(err, &first) || first.Message.Code != 3 || !strings.Contains(err.Error(), "refused 5 more") {
			t.Error(err)
		}
		// An error after that is of nobody: the handler's.
		f.send(h.XID-1, &openflow.ErrorMessage{ErrorType: openflow.ErrorFlowModFailed})
		synctest.Wait()
		if n := len(w.handler.messages); n != 1 || c.Stats().Outstanding != 0 {
			t.Errorf("%d messages to the handler, want 1", n)
		}
		go func() { done <- c.Apply(w.t.Context(), flows[:2]...) }()
		for range 2 {
			f.expect(openflow.TypeFlowMod)
		}
		h, _ = f.expect(openflow.TypeBarrierRequest)
		f.send(h.XID, &openflow.BarrierReply{})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestApply_AllOrNothing: what does not fit is not begun.
func TestApply_AllOrNothing(t *testing.T) {
	inWorld(t, Config{Limits: Limits{QueueMessages: 16}}, func(w *world) {
		f, c := w.join(1)
		f.become(c)
		before := c.Stats()
		flows := make([]openflow.Message, 16) // and the barrier
		for i := range flows {
			flows[i] = &openflow.FlowMod{BufferID: openflow.NoBuffer}
		}
		if err := c.Apply(w.t.Context(), flows...); !errors.Is(err, ErrQueueFull) {
			t.Errorf("%v, want ErrQueueFull", err)
		}
		bad := &openflow.PacketOut{Data: make([]byte, openflow.MaxLen)}
		if err := c.Apply(w.t.Context(), flows[0], bad); err == nil {
			t.Error("a message that cannot be said was sent")
		}
		after := c.Stats()
		if after.QueuedBytes != 0 || after.Out != before.Out || after.BytesOut != before.BytesOut || after.Outstanding != 0 {
			t.Errorf("queued %d bytes, counted %v", after.QueuedBytes, after.Out)
		}
		f.live(nil)
		if err := c.Apply(w.t.Context(), flows[:15]...); err != nil {
			t.Error(err)
		}
	})
}

// become makes the controller MASTER of a switch that does not answer by itself.
func (f *fakeSwitch) become(c *Conn) {
	f.t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.SetRole(context.Background(), openflow.RoleMaster, 1) }()
	h, _ := f.expect(openflow.TypeRoleRequest)
	f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 1})
	if err := <-done; err != nil {
		f.t.Fatal(err)
	}
}
