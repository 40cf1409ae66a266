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

// A running switch can be asked to read its file again, and answers. Like its ports, its socket (package localsock)
// belongs to the network namespace. Both ends must run as root or as the switch's own user.
const (
	askReload   = "reload"
	askBytes    = 64
	answerBytes = 1 << 20
	askTimeout  = 5 * time.Second // to send the request
)

// Answer is the result of a reload.
type Answer struct {
	Refused string   `json:"refused,omitempty"` // the reason; nothing has changed
	Changes []string `json:"changes"`           // what changed, one per line
}

// control receives the requests to a running switch.
type control struct {
	name   string // of the switch
	log    *slog.Logger
	asked  chan chan<- Answer
	socket *net.UnixListener
	done   chan struct{}
	said   bool // that it cannot listen was logged
}

func newControl(name string, log *slog.Logger) *control {
	c := &control{name: name, log: log, asked: make(chan chan<- Answer), done: make(chan struct{})}
	c.listen()
	return c
}

// listen opens the socket if it is not open. The process that is taken over may still have the address; then listen is
// called again later.
func (c *control) listen() {
	if c.socket != nil {
		return
	}
	s, err := localsock.Listen(localsock.Switch, c.name)
	if err != nil {
		if !c.said {
			c.log.Warn("control socket not available yet: reload works by SIGHUP only", "error", err)
		}
		c.said = true
		return
	}
	c.socket = s
	go c.accept(s)
}

// accept serves one request after the other.
func (c *control) accept(s *net.UnixListener) {
	for {
		one, err := s.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.log.Warn("cannot accept a request on the control socket", "error", err)
			select {
			case <-c.done:
				return
			case <-time.After(time.Second): // most likely no file descriptor is free
			}
			continue
		}
		switch err := c.serve(one); {
		case wentAway(err):
			c.log.Debug("the client closed the control socket early", "error", err)
		case err != nil:
			c.log.Warn("request on the control socket refused", "error", err)
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
		return fmt.Errorf("unknown request %q: only reload is known", text)
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

// wentAway reports whether the client closed the connection before the answer.
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

// Reload asks the process of the switch with this name, in this network namespace, to read its file again, and waits
// for its answer.
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
		return nil, fmt.Errorf("reload switch %s: no answer; see the log of weir switch: %w", name, err)
	}
	return &answer, nil
}

// whoHas explains why no process answers for a switch.
func (a *Agent) whoHas(nobody *localsock.NobodyError) error {
	if v, err := a.Open(nobody.Name); err == nil {
		defer func() { _ = v.Close() }()
		if s, err := v.Read(); err == nil && s.Alive() {
			return fmt.Errorf("%v runs it, but does not answer here: it is in another network namespace, or could not make its control socket (see its log); use kill -HUP %d", s.Holder, s.Holder.PID)
		}
	}
	return fmt.Errorf("%w; start it with weir switch -f FILE, or set its --name", nobody)
}
