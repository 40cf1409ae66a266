package switchd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/localsock"
	"weir/internal/peer"
)

// A switch at work can be asked to read its file again, and answers. Its socket (package localsock) belongs to the
// network namespace, as the ports do. Both ends of it must be root or the switch's own user.
const (
	askReload   = "reload"
	askBytes    = 64
	answerBytes = 1 << 20
	askTimeout  = 5 * time.Second // to say what one wants
)

// Answer is what became of a reload.
type Answer struct {
	Refused string   `json:"refused,omitempty"` // why; nothing has changed
	Changes []string `json:"changes"`           // what has, a line each
}

// control takes in what others ask of a switch at work.
type control struct {
	name   string // of the switch
	log    *slog.Logger
	asked  chan chan<- Answer
	socket *net.UnixListener
	done   chan struct{}
	said   bool // that it cannot listen
}

func newControl(name string, log *slog.Logger) *control {
	c := &control{name: name, log: log, asked: make(chan chan<- Answer), done: make(chan struct{})}
	c.listen()
	return c
}

// listen listens, unless it does. The process that is taken over from may still have the address: then it
// is called again.
func (c *control) listen() {
	if c.socket != nil {
		return
	}
	s, err := localsock.Listen(localsock.Switch, c.name)
	if err != nil {
		if !c.said {
			c.log.Warn("cannot be asked to reload yet, except by SIGHUP", "error", err)
		}
		c.said = true
		return
	}
	c.socket = s
	go c.accept(s)
}

// accept serves one after the other: a reload is nothing to do twice at once.
func (c *control) accept(s *net.UnixListener) {
	for {
		one, err := s.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.log.Warn("cannot take in what is asked", "error", err)
			select {
			case <-c.done:
				return
			case <-time.After(time.Second): // no file left, most likely
			}
			continue
		}
		switch err := c.serve(one); {
		case wentAway(err):
			c.log.Debug("who asked went away", "error", err)
		case err != nil:
			c.log.Warn("asked for something wrongly", "error", err)
		}
		_ = one.Close()
	}
}

func (c *control) serve(one *net.UnixConn) error {
	if err := peer.Check(one); err != nil {
		return err
	}
	if err := one.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(one, askBytes))
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return io.ErrUnexpectedEOF
	}
	if strings.TrimSpace(string(text)) != askReload {
		return fmt.Errorf("%q is nothing that can be asked for", text)
	}
	answer := make(chan Answer, 1)
	select {
	case c.asked <- answer:
	case <-c.done:
		return nil
	}
	select {
	case a := <-answer:
		if err := one.SetDeadline(time.Now().Add(askTimeout)); err != nil {
			return err
		}
		return json.NewEncoder(one).Encode(a)
	case <-c.done:
		return nil
	}
}

// wentAway says whether a connection ended before the answer.
func wentAway(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

func (c *control) close() {
	if c.socket != nil {
		_ = c.socket.Close()
		c.socket = nil
	}
	select {
	case <-c.done:
	default:
		close(c.done)
	}
}

// Reload asks the process that has the switch with this name, in this network namespace, to read its file
// again, and waits for its answer.
func (a *Agent) Reload(name string) (*Answer, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	c, err := localsock.Dial(localsock.Switch, name)
	if nobody := new(localsock.NobodyError); errors.As(err, &nobody) {
		err = a.whoHas(nobody)
	}
	if err != nil {
		return nil, fmt.Errorf("reload switch %s: %w", name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(reloadMost)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, askReload); err != nil {
		return nil, fmt.Errorf("reload switch %s: %w", name, err)
	}
	if err := c.CloseWrite(); err != nil {
		return nil, fmt.Errorf("reload switch %s: %w", name, err)
	}
	var answer Answer
	if err := json.NewDecoder(io.LimitReader(c, answerBytes)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reload switch %s: no answer, its log says more: %w", name, err)
	}
	return &answer, nil
}

// whoHas says why nobody answers for a switch.
func (a *Agent) whoHas(nobody *localsock.NobodyError) error {
	if v, err := a.law.Open(pinDir(nobody.Name)); err == nil {
		defer func() { _ = v.Close() }()
		if s, err := v.Read(); err == nil && s.Alive() {
			return fmt.Errorf("%v has it and cannot be asked: it is of another network namespace, or could not make its control socket (its log says why): kill -HUP %d", s.Holder, s.Holder.PID)
		}
	}
	return fmt.Errorf("%w: start it with weir switch -f FILE, or give its --name", nobody)
}
