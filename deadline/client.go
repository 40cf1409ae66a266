package deadline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultSocket is where a container has the directory of its sockets mounted.
const DefaultSocket = "/run/weir-deadlines/deadline.sock"

// MetadataAddress is where a VM has the agent of its host, if there is no socket and the agent's file has it in host.deadlines.metadata.
const MetadataAddress = "http://169.254.169.253"

// SocketVariable is the environment variable with another path, or another address that begins with http://.
const SocketVariable = "WEIR_DEADLINE_SOCKET"

// Socket returns the path of the socket, or an address: the argument, that of the environment, or the default. Without a socket at the
// default path it is MetadataAddress.
func Socket(path string) string {
	if path = cmp.Or(path, os.Getenv(SocketVariable)); path != "" {
		return path
	}
	if _, err := os.Stat(DefaultSocket); errors.Is(err, os.ErrNotExist) {
		return MetadataAddress
	}
	return DefaultSocket
}

// target returns the network and the address to dial.
func target(socket string) (network, address string) {
	host, is := strings.CutPrefix(socket, "http://")
	if !is {
		return "unix", socket
	}
	host = strings.TrimSuffix(host, "/")
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return "tcp", host
}

// Client asks the agent of this host. It may be used by several goroutines.
type Client struct{ http *http.Client }

const (
	answerTime  = 5 * time.Second
	answerBytes = 16 << 20
	clientConns = 4
)

// New returns a client of the agent that listens on this socket, or at this address (http://HOST[:PORT]); "": see Socket.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		network, address := target(Socket(socket))
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return &Client{&http.Client{Timeout: answerTime, Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: clientConns, MaxConnsPerHost: clientConns}}}
}

// Refusal is the error of the agent.
type Refusal struct {
	Status int
	Reason string `json:"reason"` // one word
	Text   string `json:"error"`
}

func (r *Refusal) Error() string { return r.Text }

// Declare declares a message. It returns the declaration's ID. The error can be a *Refusal.
func (c *Client) Declare(ctx context.Context, d Declaration) (uint64, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return 0, err
	}
	var answer struct {
		ID uint64 `json:"id"`
	}
	return answer.ID, c.ask(ctx, http.MethodPost, "", text, &answer)
}

// DeclareConn declares a message of an open connection.
func (c *Client) DeclareConn(ctx context.Context, conn *net.TCPConn, within time.Duration, size uint64) (uint64, error) {
	local, remote := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	plain := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
	return c.Declare(ctx, Declaration{Source: plain(local), Destination: plain(remote), Within: within, Bytes: size})
}

// Delete takes a declaration back.
func (c *Client) Delete(ctx context.Context, id uint64) error {
	return c.ask(ctx, http.MethodDelete, "/"+strconv.FormatUint(id, 10), nil, nil)
}

// List is what the agent has of this program's VM or container.
type List struct {
	Deadlines []Declared        `json:"deadlines"`
	Refused   map[string]uint64 `json:"refused"` // since the agent began, by reason
}

// List returns the declarations whose deadline is ahead.
func (c *Client) List(ctx context.Context) (*List, error) {
	var l List
	return &l, c.ask(ctx, http.MethodGet, "", nil, &l)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) ask(ctx context.Context, method, path string, text []byte, answer any) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://weir/v1/deadlines"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	got, err := c.http.Do(q)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer got.Body.Close()
	in := json.NewDecoder(io.LimitReader(got.Body, answerBytes))
	if got.StatusCode >= http.StatusBadRequest {
		r := &Refusal{Status: got.StatusCode}
		if err := in.Decode(r); err != nil || r.Text == "" {
			return fmt.Errorf("the agent answered %s", got.Status)
		}
		return r
	}
	if answer == nil {
		return nil
	}
	return in.Decode(answer)
}
