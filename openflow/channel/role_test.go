package channel

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"weir/openflow"
)

// changes are the messages that could change a switch. None may go out before MASTER is confirmed.
var changes = []openflow.Message{
	&openflow.FlowMod{BufferID: openflow.NoBuffer}, &openflow.GroupMod{}, &openflow.MeterMod{MeterID: 1}, &openflow.PortMod{PortNo: 1},
	&openflow.TableMod{}, &openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: openflow.PortController}, &openflow.SetConfig{},
	&openflow.Experimenter{Experimenter: 0x2320},
	&openflow.MultipartRequest{Type: openflow.MultipartTableFeatures, Body: openflow.TableFeatures{{TableID: 1}}},
	&openflow.MultipartRequest{Type: openflow.MultipartExperimenter, Body: &openflow.MultipartExperiment{Experimenter: 1}},
}

// questions change nothing, whoever asks.
var questions = []openflow.Message{
	&openflow.GetConfigRequest{}, &openflow.BarrierRequest{}, &openflow.GetAsyncRequest{}, &openflow.EchoRequest{}, &openflow.SetAsync{},
	&openflow.MultipartRequest{Type: openflow.MultipartTableFeatures}, &openflow.MultipartRequest{Type: openflow.MultipartPortDesc},
}

// sent collects what reached a switch, but for echo requests.
type sent struct {
	mu  sync.Mutex
	all []openflow.Message
}

func (s *sent) see(_ openflow.Header, m openflow.Message) {
	if _, ok := m.(*openflow.EchoRequest); ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, m)
}

func (s *sent) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func TestRole_NothingChangesBeforeMaster(t *testing.T) {
	refused := func(w *world, c *Conn, s *sent) {
		w.t.Helper()
		before := s.count()
		for _, m := range changes {
			_, err := c.Send(m)
			if !errors.Is(err, ErrNotMaster) {
				t.Errorf("%s: %v, want ErrNotMaster", m.MessageType(), err)
			}
			if err := c.Apply(w.t.Context(), &openflow.SetAsync{}, m); !errors.Is(err, ErrNotMaster) {
				t.Errorf("%s applied: %v, want ErrNotMaster", m.MessageType(), err)
			}
			if _, ok := answerOf(m.MessageType()); ok {
				if _, err := c.Ask(m); !errors.Is(err, ErrNotMaster) {
					t.Errorf("%s asked: %v, want ErrNotMaster", m.MessageType(), err)
				}
			}
		}
		synctest.Wait()
		if n := s.count() - before; n != 0 {
			t.Errorf("%d messages reached the switch", n)
		}
	}
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		s := new(sent)
		f.live(s.see)
		refused(w, c, s)
		for _, role := range []openflow.Role{openflow.RoleSlave, openflow.RoleEqual} {
			if err := c.SetRole(w.t.Context(), role, 5); err != nil {
				t.Fatal(err)
			}
			refused(w, c, s)
		}
		for _, m := range questions {
			if _, err := c.Send(m); err != nil {
				t.Errorf("%s: %v", m.MessageType(), err)
			}
		}
		for _, m := range []openflow.Message{&openflow.Hello{}, &openflow.RoleRequest{Role: openflow.RoleMaster}} {
			if _, err := c.Send(m); !errors.Is(err, ErrMessage) {
				t.Errorf("%s: %v, want ErrMessage", m.MessageType(), err)
			}
		}
		if err := c.SetRole(w.t.Context(), openflow.RoleMaster, 5); err != nil {
			t.Fatal(err)
		}
		if g, ok := c.Master(); !ok || g != 5 {
			t.Errorf("master %v with %d", ok, g)
		}
		synctest.Wait()
		before := s.count()
		for _, m := range changes {
			if _, err := c.Send(m); err != nil {
				t.Errorf("%s: %v", m.MessageType(), err)
			}
		}
		synctest.Wait()
		if n := s.count() - before; n != len(changes) {
			t.Errorf("%d messages reached the switch, want %d", n, len(changes))
		}
		if err := c.SetRole(w.t.Context(), openflow.RoleSlave, 5); err != nil { // gives it up
			t.Fatal(err)
		}
		refused(w, c, s)
	})
}

// TestRole_NotWhileAsking: between the request and its confirmation nothing may be changed.
func TestRole_NotWhileAsking(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		done := make(chan error, 1)
		go func() { done <- c.SetRole(w.t.Context(), openflow.RoleMaster, 5) }()
		h, m := f.expect(openflow.TypeRoleRequest)
		if r := m.(*openflow.RoleRequest); r.Role != openflow.RoleMaster || r.GenerationID != 5 {
			t.Errorf("asked %v", r)
		}
		if _, err := c.Send(changes[0]); !errors.Is(err, ErrNotMaster) {
			t.Errorf("%v, want ErrNotMaster", err)
		}
		f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 5})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := c.Send(changes[0]); err != nil {
			t.Error(err)
		}
	})
}

// TestRole_TooLate: a confirmation that comes after the deadline makes nobody MASTER.
func TestRole_TooLate(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		ctx, cancel := context.WithTimeout(w.t.Context(), s1)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- c.SetRole(ctx, openflow.RoleMaster, 5) }()
		h, _ := f.expect(openflow.TypeRoleRequest)
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 5})
		synctest.Wait()
		if _, ok := c.Master(); ok || c.Stats().Strange != 1 {
			t.Errorf("master %v, %d strange", ok, c.Stats().Strange)
		}
	})
}

// store keeps the ids that it was given, and returns a chosen error.
type store struct {
	mu   sync.Mutex
	kept []uint64
	err  error
}

func (s *store) Advance(g uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, g)
	return s.err
}

func TestRole_KeptBeforeUsed(t *testing.T) {
	full := errors.New("disk full")
	st := &store{err: full}
	inWorld(t, Config{Generations: st}, func(w *world) {
		f, c := w.join(1)
		s := new(sent)
		f.live(s.see)
		if err := c.SetRole(w.t.Context(), openflow.RoleMaster, 5); !errors.Is(err, full) {
			t.Errorf("%v, want %v", err, full)
		}
		synctest.Wait()
		if n := s.count(); n != 0 || c.Err() != nil {
			t.Errorf("%d messages went out without it, %v", n, c.Err())
		}
	})
}

// TestRole_PeerEndsIt: whatever the switch says that shows that it obeys another, or obeys nobody's rules, ends the
// connection, and at once no change can be sent any more.
func TestRole_PeerEndsIt(t *testing.T) {
	onf := func(role openflow.Role, generation uint64) openflow.Message {
		data := encode(t, 0, &openflow.RoleReply{Role: role, GenerationID: generation})[openflow.HeaderLen:]
		return &openflow.Experimenter{Experimenter: experimenterONF, ExpType: experimenterRoleStat, Data: data}
	}
	status := func(role openflow.Role, generation uint64) []byte {
		b := encode(t, 0, &openflow.RoleReply{Role: role, GenerationID: generation})
		b[1] = byte(typeRoleStatus)
		return b
	}
	for name, c := range map[string]struct {
		bytes []byte
		cause Cause // CausePeerClosed: it lives on
	}{
		"slave by ONF's role status":     {encode(t, 0, onf(openflow.RoleSlave, 6)), CauseStale},
		"slave of the same term":         {encode(t, 0, onf(openflow.RoleSlave, 5)), CauseRoleLost},
		"higher term, yet master":        {encode(t, 0, onf(openflow.RoleMaster, 6)), CauseStale},
		"slave, no term":                 {encode(t, 0, onf(openflow.RoleSlave, noGeneration)), CauseRoleLost},
		"higher by wrapping":             {encode(t, 0, onf(openflow.RoleMaster, 5+1<<62)), CauseStale},
		"all as it was":                  {encode(t, 0, onf(openflow.RoleMaster, 5)), CausePeerClosed},
		"lower term, master":             {encode(t, 0, onf(openflow.RoleMaster, 4)), CausePeerClosed},
		"another experimenter":           {encode(t, 0, &openflow.Experimenter{Experimenter: 7, Data: make([]byte, 16)}), CausePeerClosed},
		"slave by 1.4's role status":     {status(openflow.RoleSlave, 6), CauseStale},
		"IS_SLAVE to a flow-mod":         {encode(t, 99, &openflow.ErrorMessage{ErrorType: 1, Code: 10}), CauseRoleLost},
		"STALE to nothing that we asked": {encode(t, 99, &openflow.ErrorMessage{ErrorType: 11}), CauseStale},
		"another role error":             {encode(t, 99, &openflow.ErrorMessage{ErrorType: 11, Code: 1}), CausePeerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			st := &store{}
			inWorld(t, Config{Generations: st}, func(w *world) {
				f, conn := w.join(1)
				f.live(nil)
				if err := conn.SetRole(w.t.Context(), openflow.RoleMaster, 5); err != nil {
					t.Fatal(err)
				}
				f.write(c.bytes)
				synctest.Wait()
				_, err := conn.Send(changes[0])
				if c.cause == CausePeerClosed {
					if err != nil {
						t.Errorf("it ended: %v", err)
					}
				} else {
					w.ended(conn, c.cause)
					if _, ok := conn.Master(); ok || err == nil {
						t.Errorf("master %v, sends: %v", ok, err)
					}
				}
				if len(st.kept) != 1 || st.kept[0] != 5 {
					t.Errorf("the store got %v: a peer's numbers are none of its business", st.kept)
				}
			})
		})
	}
}

// TestRole_Answers: a wrong confirmation ends the connection, and a refusal is returned.
func TestRole_Answers(t *testing.T) {
	for name, c := range map[string]struct {
		answer openflow.Message
		cause  Cause // CausePeerClosed: it lives on
	}{
		"another generation id": {&openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 1 << 40}, CauseRoleForged},
		"an older one":          {&openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 4}, CauseRoleForged},
		"another role":          {&openflow.RoleReply{Role: openflow.RoleSlave, GenerationID: 5}, CauseRoleForged},
		"stale":                 {&openflow.ErrorMessage{ErrorType: 11, Code: 0}, CauseStale},
		"unsupported":           {&openflow.ErrorMessage{ErrorType: 11, Code: 1}, CausePeerClosed},
		"no role at all":        {&openflow.BarrierReply{}, CausePeerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				f, conn := w.join(1)
				done := make(chan error, 1)
				go func() { done <- conn.SetRole(w.t.Context(), openflow.RoleMaster, 5) }()
				h, _ := f.expect(openflow.TypeRoleRequest)
				f.send(h.XID, c.answer)
				err := <-done
				if _, ok := conn.Master(); err == nil || ok {
					t.Errorf("master %v, %v", ok, err)
				}
				if c.cause == CausePeerClosed {
					var remote *RemoteError
					var other *UnexpectedReplyError
					if conn.Err() != nil || !errors.As(err, &remote) && !errors.As(err, &other) {
						t.Errorf("%v; ended: %v", err, conn.Err())
					}
					return
				}
				w.ended(conn, c.cause)
			})
		})
	}
}

// TestRole_RefusedID: a switch that calls our id stale is asked for the one that it knows. The connection ends, whatever
// it says, also when it says nothing; the caller is given its word.
func TestRole_RefusedID(t *testing.T) {
	for name, c := range map[string]struct {
		answer openflow.Message // nil: none
		known  uint64
	}{
		"it says":            {&openflow.RoleReply{Role: openflow.RoleEqual, GenerationID: 9}, 9},
		"it says a huge one": {&openflow.RoleReply{Role: openflow.RoleEqual, GenerationID: 1 << 62}, 1 << 62},
		"it says nothing":    {nil, 5},
		"it says no":         {&openflow.ErrorMessage{ErrorType: 11, Code: 1}, 5},
		"it says stale":      {&openflow.ErrorMessage{ErrorType: 11, Code: 0}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			st := &store{}
			inWorld(t, Config{Generations: st}, func(w *world) {
				f, conn := w.join(1)
				done := make(chan error, 1)
				go func() { done <- conn.SetRole(w.t.Context(), openflow.RoleMaster, 5) }()
				h, _ := f.expect(openflow.TypeRoleRequest)
				f.send(h.XID, &openflow.ErrorMessage{ErrorType: 11, Code: 0})
				h, m := f.expect(openflow.TypeRoleRequest)
				if r := m.(*openflow.RoleRequest); r.Role != openflow.RoleNoChange {
					t.Errorf("asked %v", r)
				}
				if _, err := conn.Send(changes[0]); !errors.Is(err, ErrNotMaster) {
					t.Errorf("meanwhile: %v, want ErrNotMaster", err)
				}
				if c.answer != nil {
					f.send(h.XID, c.answer)
				}
				var refused *RefusedIDError
				if err := <-done; !errors.As(err, &refused) || *refused != (RefusedIDError{5, c.known}) {
					t.Errorf("%v, want %d known", err, c.known)
				}
				w.ended(conn, CauseStale)
				if len(st.kept) != 1 {
					t.Errorf("the store got %v: a peer's numbers are none of its business", st.kept)
				}
			})
		})
	}
}

// TestRole_Watched: a switch that has another master and reports it to nobody is detected at the next echo interval.
func TestRole_Watched(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		done := make(chan error, 1)
		go func() { done <- c.SetRole(w.t.Context(), openflow.RoleMaster, 5) }()
		h, _ := f.expect(openflow.TypeRoleRequest)
		f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 5})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h, m := f.expect(openflow.TypeRoleRequest)
		if m.(*openflow.RoleRequest).Role != openflow.RoleNoChange {
			t.Errorf("asked %v", m)
		}
		f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 5})
		h, _ = f.expect(openflow.TypeRoleRequest)
		f.send(h.XID, &openflow.RoleReply{Role: openflow.RoleEqual, GenerationID: 5})
		w.ended(c, CauseRoleLost)
		has(t, w.log.String(), "EQUAL")
	})
}

func TestGenerationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation")
	a, b := &GenerationFile{Path: path}, &GenerationFile{Path: path} // as two processes
	for i, g := range []*GenerationFile{a, b, a} {
		if got, err := g.Next(); err != nil || got != uint64(i+1) {
			t.Fatalf("%d, %v, want %d", got, err, i+1)
		}
	}
	if err := b.Advance(10); err != nil {
		t.Fatal(err)
	}
	if err := b.Advance(10); err != nil {
		t.Errorf("the same again: %v", err)
	}
	var stale *StaleError
	if err := a.Advance(9); !errors.As(err, &stale) || *stale != (StaleError{Generation: 9, Kept: 10}) {
		t.Errorf("a lower one: %v", err)
	}
	if err := a.Advance(10 + 1<<63); !errors.As(err, &stale) { // half the circle away is not above
		t.Errorf("half round: %v", err)
	}
	// It wraps, and leaves out the number that Open vSwitch gives for none.
	for _, g := range []uint64{1 << 62, 1 << 63, 3 << 62, noGeneration - 1} {
		if err := a.Advance(g); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.Next(); err != nil || got != 0 {
		t.Errorf("after the last: %d, %v", got, err)
	}
	if err := a.Advance(7); err != nil {
		t.Error(err)
	}
	if got, _, err := readGeneration(path); err != nil || got != 7 {
		t.Errorf("kept %d, %v", got, err)
	}
	if left, err := filepath.Glob(path + ".new*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

// The id of an active controller is raised above what a switch knows, but not over another controller's, nor far.
func TestGenerationFile_Raise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation")
	a, b := &GenerationFile{Path: path}, &GenerationFile{Path: path}
	if err := a.Check(0); err != nil {
		t.Errorf("no file yet: %v", err)
	}
	if err := a.Advance(5); err != nil {
		t.Fatal(err)
	}
	if err := a.Raise(5, 10); err != nil {
		t.Error(err)
	}
	var stale *StaleError
	if err := b.Raise(5, 20); !errors.As(err, &stale) || stale.Kept != 10 {
		t.Errorf("over another's: %v", err)
	}
	if err := b.Check(5); !errors.As(err, &stale) || stale.Kept != 10 {
		t.Errorf("another's is above: %v", err)
	}
	if err := a.Check(10); err != nil {
		t.Error(err)
	}
	const step = 100
	for _, c := range []struct {
		generation, known, next uint64
		ok                      bool
	}{
		{5, 5, 0, false},
		{5, 4, 0, false},
		{5, 6, 7, true},
		{5, 103, 104, true},
		{5, 104, 105, true},
		{5, 105, 105, true},
		{5, 5 + 1<<62, 105, true},
		{5, 5 + 1<<63, 105, true},
		{5, 6 + 1<<63, 0, false}, // more than half the circle away is below
		{5, noGeneration, 0, false},
		{noGeneration - 1, 3, 4, true}, // over the end of the circle
		{noGeneration - step, 50, 0, true},
		{noGeneration - 3, noGeneration - 1, 0, true},
	} {
		if next, ok := Above(c.generation, c.known, step); next != c.next || ok != c.ok {
			t.Errorf("above %d, a switch knows %d: %d, %v, want %d", c.generation, c.known, next, ok, c.next)
		}
	}
}
