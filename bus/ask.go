package bus

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"weir/bus/pki"
	"weir/bus/weirv1"
)

// Operators ask controllers and agents by name, on askPrefix + ROLE.NAME, and get an answer in their inbox. Question and answer are
// JSON, so the nats command can ask, too.
const (
	askPrefix  = "weir.v1.ask."
	maxAsk     = 4096 // bytes of a question
	asksASec   = 50   // that one identity answers; further ones get no answer
	zipFrom    = 64 << 10
	maxAnswer  = 16 << 20 // bytes of an answer without compression
	heardFor   = 700 * time.Millisecond
	askedFor   = 3 * time.Second
	askAtOnce  = 64
	answerOnce = 10 * time.Second // how long an answer to a question may be sent
)

// The questions.
const (
	AskStatus = "status"
	AskTrace  = "trace"
	AskForget = "forget" // of a controller
)

// Question is what an operator asks.
type Question struct {
	What  string   `json:"what"`
	VM    uint32   `json:"vm,omitempty"`    // trace: of this VM only
	Last  int      `json:"last,omitempty"`  // trace: so many, the newest
	Of    []uint64 `json:"of,omitempty"`    // trace: of these decisions
	Agent string   `json:"agent,omitempty"` // forget: remove it from the inventory
}

func askSubject(id pki.Identity) string { return askPrefix + string(id.Role) + "." + id.Name }

// reply is the message that answers.
type reply struct {
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Answer answers operators' questions with answer, which gets one after the other and must return soon.
func (c *Conn) Answer(answer func(*Question) (any, error)) error {
	limit := rate.NewLimiter(asksASec, asksASec)
	inboxes := InboxPrefix(pki.Identity{Role: pki.Operator}) // and the operator's name
	return c.listen(askSubject(c.id), asksASec, func(m *nats.Msg) {
		// The server lets us answer to any subject that a question names, also one of ours that operators cannot use.
		if !strings.HasPrefix(m.Reply, inboxes) || len(m.Data) > maxAsk || !limit.Allow() {
			c.unanswered.Add(1)
			return
		}
		b, err := c.answered(m.Data, answer)
		if err == nil {
			err = m.Respond(b)
		}
		if err != nil {
			c.log.Warn("cannot answer an operator", "error", err)
		}
	})
}

func (c *Conn) answered(data []byte, answer func(*Question) (any, error)) ([]byte, error) {
	var q Question
	var r reply
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
	if err == nil {
		var v any
		if v, err = answer(&q); err == nil {
			r.Answer, err = json.Marshal(v)
		}
	}
	if err != nil {
		r = reply{Error: err.Error()}
	}
	b, err := json.Marshal(r)
	if err != nil || len(b) <= zipFrom {
		return b, err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if zipped.Len() > maxMessage || len(b) > maxAnswer {
		return json.Marshal(reply{Error: fmt.Sprintf("the answer has %d bytes, too many for a message: ask for less", len(b))})
	}
	return zipped.Bytes(), nil
}

// Ask asks one controller or agent, and reads its answer into v.
func (c *Conn) Ask(ctx context.Context, to pki.Identity, q *Question, v any) error {
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	data, err := json.Marshal(q)
	if err != nil {
		return err
	}
	m, err := c.nc.RequestWithContext(ctx, askSubject(to), data)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%v is not connected to the bus", to)
	}
	if err != nil {
		return fmt.Errorf("%v does not answer: %w", to, err)
	}
	b := m.Data
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(io.LimitReader(z, maxAnswer))
		}
		if err != nil {
			return fmt.Errorf("the answer of %v: %w", to, err)
		}
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("the answer of %v: %w", to, err)
	}
	if r.Error != "" {
		return fmt.Errorf("%v: %s", to, r.Error)
	}
	if err := json.Unmarshal(r.Answer, v); err != nil {
		return fmt.Errorf("the answer of %v: %w", to, err)
	}
	return nil
}

// Holder is a controller whose heartbeat was heard.
type Holder struct {
	Name string            `json:"name"`
	Run  uint64            `json:"run"`
	Held map[uint32]uint64 `json:"held"` // buckets, with their terms
}

// Controllers listens for as long as every controller sends a heartbeat, and returns those that did, sorted by name.
func (c *Conn) Controllers(ctx context.Context) ([]Holder, error) {
	heard := make(chan Holder, 1024)
	s, err := c.nc.Subscribe(controlPrefix+"*", func(m *nats.Msg) {
		h, err := weirv1.DecodeHeartbeat(m.Data)
		if err != nil || nameIn(m.Subject, controlPrefix) != h.GetController().GetName() {
			return
		}
		one := Holder{Name: h.GetController().GetName(), Run: h.GetController().GetRun(), Held: map[uint32]uint64{}}
		for _, b := range h.GetHeld() {
			one.Held[b.GetBucket()] = b.GetTerm()
		}
		select {
		case heard <- one:
		default:
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to controllers: %w", err)
	}
	defer func() { _ = s.Unsubscribe() }() // the connection may have ended
	byName := map[string]Holder{}
	end := time.NewTimer(heardFor)
	defer end.Stop()
	for {
		select {
		case h := <-heard:
			byName[h.Name] = h
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
		}
		out := make([]Holder, 0, len(byName))
		for _, h := range byName {
			out = append(out, h)
		}
		slices.SortFunc(out, func(a, b Holder) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	}
}

// Answered is one answer to a question to many.
type Answered[T any] struct {
	From   pki.Identity
	Answer T
	Err    error
}

// AskAll asks many, some at a time. The answers are in their order.
func AskAll[T any](ctx context.Context, c *Conn, to []pki.Identity, q *Question) []Answered[T] {
	out := make([]Answered[T], len(to))
	places, done := make(chan struct{}, askAtOnce), make(chan struct{}, len(to))
	for i := range to {
		places <- struct{}{}
		go func() {
			out[i].From = to[i]
			out[i].Err = c.Ask(ctx, to[i], q, &out[i].Answer)
			<-places
			done <- struct{}{}
		}()
	}
	for range to {
		<-done
	}
	return out
}
