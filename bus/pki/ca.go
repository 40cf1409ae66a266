// Package pki has the small certificate authority (CA) of Weir's bus. An operator runs it in a directory on one machine.
//
//	identity.go  who a certificate is for
//	ca.go        the directory: make, sign, revoke, rotate
//	files.go     a peer's files: its key and certificate, trusted CAs, revoked certificates; read again when they change
//	tls.go       TLS configurations that follow the files
//	frames.go    keys of commands in frames
//
// The directory has ca.pem (the trusted CAs, the newest first), ca.key, revoked (serial numbers, one a line) and issued.json.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/lockfile"
	"weir/internal/replace"
)

// Validity of certificates. A peer gets a new one with [CA.Enrol] long before it expires.
const (
	CAValidity      = 10 * 365 * 24 * time.Hour
	DefaultValidity = 90 * 24 * time.Hour
	backdate        = 5 * time.Minute // clocks of machines differ
)

// RouteName is a DNS name in the certificates of servers of the bus. An external cluster accepts other servers by it.
const RouteName = "bus.weir.internal"

// CA is the directory. Now is the clock, time.Now by default.
type CA struct {
	Dir string
	Now func() time.Time
}

// Issued describes a certificate.
type Issued struct {
	Serial   string    `json:"serial"` // hexadecimal
	Identity string    `json:"identity"`
	NotAfter time.Time `json:"not_after"`
	Revoked  bool      `json:"revoked,omitempty"`
}

func (ca *CA) now() time.Time {
	if ca.Now != nil {
		return ca.Now()
	}
	return time.Now()
}

func (ca *CA) path(name string) string { return filepath.Join(ca.Dir, name) }

// Create makes the directory with a new CA. It refuses to replace one.
func (ca *CA) Create() error {
	if err := os.MkdirAll(ca.Dir, 0o700); err != nil {
		return fmt.Errorf("make the CA: %w", err)
	}
	return ca.locked(func() error {
		if _, err := os.Lstat(ca.path("ca.key")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has a CA already: use another directory, or rotate it", ca.Dir)
		}
		return ca.newKey(nil)
	})
}

// Rotate makes a new key for the CA. ca.pem then has the new and the old certificates: distribute it to all peers, enrol them
// again, and call Retire last.
func (ca *CA) Rotate() error {
	return ca.locked(func() error {
		old, err := os.ReadFile(ca.path("ca.pem"))
		if err != nil {
			return fmt.Errorf("rotate the CA: %w", err)
		}
		return ca.newKey(old)
	})
}

// Retire removes the old certificates from ca.pem. Peers that read it refuse certificates that the old CA signed.
func (ca *CA) Retire() error {
	return ca.locked(func() error {
		bundle, err := os.ReadFile(ca.path("ca.pem"))
		if err != nil {
			return fmt.Errorf("retire the old CA: %w", err)
		}
		block, _ := pem.Decode(bundle)
		if block == nil {
			return fmt.Errorf("%s has no certificate", ca.path("ca.pem"))
		}
		return replace.Bytes(ca.path("ca.pem"), 0o600, pem.EncodeToMemory(block))
	})
}

func (ca *CA) newKey(old []byte) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := ca.now()
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Weir bus CA " + now.UTC().Format("2006-01-02 15:04:05")}, NotBefore: now.Add(-backdate), NotAfter: now.Add(CAValidity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if t.SerialNumber, err = serial(); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	// The certificate is trusted before the first use of its key, also if the machine stops here.
	if err := replace.Bytes(ca.path("ca.pem"), 0o600, append(encodeCertificate(der), old...)); err != nil {
		return err
	}
	if err := replace.Bytes(ca.path("ca.key"), 0o600, keyPEM); err != nil {
		return err
	}
	if _, err := os.Lstat(ca.path("revoked")); errors.Is(err, fs.ErrNotExist) {
		return replace.Bytes(ca.path("revoked"), 0o600, nil)
	}
	return nil
}

// Enrol makes a key and a certificate for id and writes them to out: NAME.pem (both), ca.pem and revoked, and for agents and
// controllers frames.key. addresses are the DNS names and IP addresses of a server of the bus.
func (ca *CA) Enrol(id Identity, out string, addresses []string, validity time.Duration) (Issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, err
	}
	der, issued, err := ca.sign(id, &key.PublicKey, addresses, validity)
	if err != nil {
		return Issued{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Issued{}, err
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return Issued{}, fmt.Errorf("enrol %s: %w", id, err)
	}
	// Key and certificate are one file, so that a reader never gets one of two enrolments each.
	if err := replace.Bytes(filepath.Join(out, id.Name+".pem"), 0o600, slices.Concat(encodeCertificate(der), keyPEM)); err != nil {
		return Issued{}, err
	}
	for _, name := range []string{"ca.pem", "revoked"} {
		b, err := os.ReadFile(ca.path(name))
		if err != nil {
			return Issued{}, err
		}
		if err := replace.Bytes(filepath.Join(out, name), 0o600, b); err != nil {
			return Issued{}, err
		}
	}
	return issued, ca.writeFrameKey(id, out)
}

func (ca *CA) writeFrameKey(id Identity, out string) error {
	return ca.locked(func() error {
		_, own, err := ca.load()
		if err != nil {
			return err
		}
		k, has, err := frameKey(own, id)
		if err != nil || !has {
			return err
		}
		return replace.Bytes(filepath.Join(out, frameFile), 0o600, []byte(hex.EncodeToString(k[:])+"\n"))
	})
}

func (ca *CA) sign(id Identity, public any, addresses []string, validity time.Duration) (der []byte, issued Issued, err error) {
	if _, err := ParseIdentity(id.String()); err != nil {
		return nil, Issued{}, err
	}
	if (id.Role == Bus) != (len(addresses) > 0) {
		return nil, Issued{}, fmt.Errorf("%s: a server of the bus needs its addresses, and other roles have none", id)
	}
	if validity == 0 {
		validity = DefaultValidity
	}
	err = ca.locked(func() error {
		signer, key, err := ca.load()
		if err != nil {
			return err
		}
		now := ca.now()
		t := &x509.Certificate{
			NotBefore: now.Add(-backdate), NotAfter: now.Add(validity), URIs: []*url.URL{id.url()}, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			Subject: pkix.Name{CommonName: id.String()},
		}
		if id.Role == Bus {
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
			t.DNSNames = []string{RouteName}
		}
		for _, a := range addresses {
			if ip := net.ParseIP(a); ip != nil {
				t.IPAddresses = append(t.IPAddresses, ip)
			} else {
				t.DNSNames = append(t.DNSNames, a)
			}
		}
		if t.SerialNumber, err = serial(); err != nil {
			return err
		}
		if der, err = x509.CreateCertificate(rand.Reader, t, signer, public, key); err != nil {
			return fmt.Errorf("sign %s: %w", id, err)
		}
		issued = Issued{Serial: t.SerialNumber.Text(16), Identity: id.String(), NotAfter: t.NotAfter}
		list, err := ca.issued()
		if err != nil {
			return err
		}
		return ca.writeIssued(append(list, issued))
	})
	return der, issued, err
}

// Revoke revokes one certificate by its serial number, or all of an identity, and returns how many. It writes the file
// revoked: distribute it to the servers of the bus.
func (ca *CA) Revoke(what string) (revoked int, err error) {
	err = ca.locked(func() error {
		list, err := ca.issued()
		if err != nil {
			return err
		}
		var lines strings.Builder
		for i := range list {
			if !list[i].Revoked && (list[i].Serial == what || list[i].Identity == what) {
				list[i].Revoked = true
				revoked++
			}
			if list[i].Revoked {
				lines.WriteString(list[i].Serial + "\n")
			}
		}
		if revoked == 0 {
			return fmt.Errorf("no valid certificate has the serial number or identity %q", clip(what))
		}
		if err := replace.Bytes(ca.path("revoked"), 0o600, []byte(lines.String())); err != nil {
			return err
		}
		return ca.writeIssued(list)
	})
	return revoked, err
}

// Issued returns all certificates that have not expired.
func (ca *CA) Issued() ([]Issued, error) {
	list, err := ca.issued()
	return slices.DeleteFunc(list, func(i Issued) bool { return i.NotAfter.Before(ca.now()) }), err
}

func (ca *CA) issued() ([]Issued, error) {
	b, err := os.ReadFile(ca.path("issued.json"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(ca.path("ca.key")); err != nil { // an empty list would be a configuration that admits nobody
			return nil, fmt.Errorf("%s has no CA: %w", ca.Dir, err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of certificates: %w", err)
	}
	var list []Issued
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", ca.path("issued.json"), err)
	}
	return list, nil
}

func (ca *CA) writeIssued(list []Issued) error {
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return replace.Bytes(ca.path("issued.json"), 0o600, append(b, '\n'))
}

func (ca *CA) load() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	bundle, err := os.ReadFile(ca.path("ca.pem"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA: %w", err)
	}
	keyPEM, err := os.ReadFile(ca.path("ca.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA: %w", err)
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, nil, fmt.Errorf("%s has no key", ca.path("ca.key"))
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", ca.path("ca.key"), err)
	}
	certificates, err := parseCertificates(bundle)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", ca.path("ca.pem"), err)
	}
	for _, c := range certificates { // the first, unless a rotation was interrupted
		if key.PublicKey.Equal(c.PublicKey) {
			return c, key, nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no certificate for %s", ca.path("ca.pem"), ca.path("ca.key"))
}

// locked calls f while no other process changes the directory.
func (ca *CA) locked(f func() error) error {
	lock, err := lockfile.TakeFile(ca.path("lock"))
	if err != nil {
		return fmt.Errorf("use the CA in %s: %w", ca.Dir, err)
	}
	return errors.Join(f(), lock.Close())
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return n.SetBit(n, 126, 1), nil
}

// Valid returns the identities that have a certificate which is neither expired nor revoked, and none that is revoked and not
// expired: a server without a list of revoked certificates could not distinguish the two.
func (ca *CA) Valid() ([]Identity, error) {
	list, err := ca.Issued()
	if err != nil {
		return nil, err
	}
	revoked := map[string]bool{}
	for _, i := range list {
		revoked[i.Identity] = revoked[i.Identity] || i.Revoked
	}
	var out []Identity
	for _, i := range list {
		id, err := ParseIdentity(i.Identity)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ca.path("issued.json"), err)
		}
		if !revoked[i.Identity] && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}
