package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// Errors of [Keys.Verify], in addition to those of x509.
var (
	ErrRevoked = errors.New("the certificate is revoked")
	ErrRole    = errors.New("the certificate is for another role")
)

// ServerTLS returns the configuration of a server of the bus: TLS 1.3, and the client must show a valid certificate of one of
// the roles. rejected, unless nil, gets each certificate that was refused with the reason.
func (k *Keys) ServerTLS(rejected func(*x509.Certificate, error), roles ...Role) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		// No ClientCAs: with a list of CAs a client that has a certificate of another one sends none, and the reason is lost.
		SessionTicketsDisabled: true, // so that a certificate is verified each time
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			own := k.current().own
			return &own, nil
		},
		// Verify does what tls.RequireAndVerifyClientCert would do. Here a failure can be counted with its reason.
		VerifyConnection: func(s tls.ConnectionState) error {
			err := k.verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, roles)
			if err != nil && rejected != nil {
				rejected(s.PeerCertificates[0], err)
			}
			return err
		},
	}
}

// ClientTLS returns the configuration for connecting to a server of the bus: TLS 1.3, and the server must have a valid
// certificate of role bus. The caller sets RootCAs from [Keys.Roots] and ServerName for each connection.
func (k *Keys) ClientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		VerifyConnection: func(s tls.ConnectionState) error {
			return k.verify(s.PeerCertificates, x509.ExtKeyUsageServerAuth, []Role{Bus})
		},
	}
}

// Own returns the peer's certificate of now.
func (k *Keys) Own() (tls.Certificate, error) { return k.current().own, nil }

// Roots returns the trusted CAs of now.
func (k *Keys) Roots() (*x509.CertPool, error) { return k.current().pool, nil }

// Verify checks the certificate of a connected client again: its CA, times, role, and whether it is revoked.
func (k *Keys) Verify(leaf *x509.Certificate, roles ...Role) error {
	return k.verify([]*x509.Certificate{leaf}, x509.ExtKeyUsageClientAuth, roles)
}

func (k *Keys) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, roles []Role) error {
	if len(chain) == 0 {
		return errors.New("the peer has no certificate")
	}
	leaf, l := chain[0], k.current()
	// Our CA signs leaves only, so a chain with another certificate between is not ours.
	_, err := leaf.Verify(x509.VerifyOptions{Roots: l.pool, CurrentTime: k.now(), KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return err
	}
	id, err := IdentityOf(leaf)
	switch {
	case err != nil:
		return err
	case l.revoked[leaf.SerialNumber.Text(16)]:
		return fmt.Errorf("%v, serial number %s: %w", id, leaf.SerialNumber.Text(16), ErrRevoked)
	case !slices.Contains(roles, id.Role):
		return fmt.Errorf("%v, want one of %v: %w", id, roles, ErrRole)
	}
	return nil
}

// PeerTLS returns the configuration of both ends of a connection between servers of the bus. Any server of the bus is
// accepted under any name.
func (k *Keys) PeerTLS(rejected func(*x509.Certificate, error)) *tls.Config {
	c := k.ServerTLS(rejected, Bus)
	c.InsecureSkipVerify = true // VerifyConnection checks, with the CAs of now
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		own, err := k.Own()
		return &own, err
	}
	return c
}
