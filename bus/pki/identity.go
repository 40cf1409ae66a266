package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Role is what an identity may do on the bus.
type Role string

// The roles.
const (
	Agent      Role = "agent"      // a switch or a host
	Controller Role = "controller" // decides
	Observer   Role = "observer"   // an operator who reads and sends nothing
	Worker     Role = "worker"     // a machine that runs experiments
	Operator   Role = "operator"   // a person who changes policies and submits experiments
	Bus        Role = "bus"        // a server of the bus
)

// Identity is a role and a name. In a certificate it is the URI weir:ROLE/NAME.
type Identity struct {
	Role Role
	Name string
}

func (id Identity) String() string { return string(id.Role) + "/" + id.Name }

// URI returns the identity as it is in certificates: weir:agent/sw1.
func (id Identity) URI() string { return "weir:" + id.String() }

// ParseIdentity reads ROLE/NAME.
func ParseIdentity(text string) (Identity, error) {
	role, name, _ := strings.Cut(text, "/")
	id := Identity{Role(role), name}
	switch id.Role {
	case Agent, Controller, Observer, Worker, Operator, Bus:
	default:
		return Identity{}, fmt.Errorf("identity %q: want agent/NAME, controller/NAME, observer/NAME, worker/NAME, operator/NAME or bus/NAME", clip(text))
	}
	if !validName(name) {
		return Identity{}, fmt.Errorf("identity %q: a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -", clip(text))
	}
	return id, nil
}

// validName is weirv1.ValidName: a name is one token of a subject, and a name of a file.
func validName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return name != "" && len(name) <= 63 && name[0] != '-' && strings.Trim(name, allowed) == ""
}

// IdentityOf returns the identity in a certificate. The certificate must have exactly one URI and no address of a mail box:
// a NATS server that maps certificates to users would try other names first.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || len(c.EmailAddresses) > 0 {
		return Identity{}, errors.New("the certificate has no identity: want one URI, weir:ROLE/NAME")
	}
	text, found := strings.CutPrefix(c.URIs[0].String(), "weir:")
	if !found {
		return Identity{}, fmt.Errorf("the certificate's URI is %q, want weir:ROLE/NAME", clip(c.URIs[0].String()))
	}
	return ParseIdentity(text)
}

func (id Identity) url() *url.URL { return &url.URL{Scheme: "weir", Opaque: id.String()} }

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
