package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"weir/experiment"
)

// The switches and the controller of a lab have certificates of the lab's own authority. The authority's key
// exists only in this process, until the certificates are made.

const certificatesDir = "tls"

// certificateLife is longer than the life of any lab.
const certificateLife = 10 * 365 * 24 * time.Hour

func (r *record) certificateFile(name string) string {
	return filepath.Join(labsDir, r.Name, certificatesDir, name)
}

// makeCertificates writes the authority's certificate, and a certificate and a key for each switch and the controller.
func (l *Lab) makeCertificates() error {
	if err := os.Mkdir(filepath.Dir(l.claim.certificateFile("ca.pem")), 0o700); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	ca, key, err := l.certify("ca", nil, nil)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	for _, n := range l.plan.nodes {
		if n.kind != experiment.Switch && n.name != controllerNode {
			continue
		}
		if _, _, err := l.certify(n.name, ca, key); err != nil {
			return fmt.Errorf("certificate of %s: %w", n.name, err)
		}
	}
	return nil
}

// certify makes a key and a certificate, signed by ca. Without a ca it makes the authority's own, and does not
// write its key.
func (l *Lab) certify(name string, ca *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // RFC 5280, 4.1.2.2: below 2^159
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if ca == nil {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		ca, by = c, key
	} else if err := l.writePEM(name+".key", "PRIVATE KEY", func() ([]byte, error) { return x509.MarshalPKCS8PrivateKey(key) }); err != nil {
		return nil, nil, err
	}
	err = l.writePEM(name+".pem", "CERTIFICATE", func() ([]byte, error) {
		return x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, by)
	})
	return c, key, err
}

func (l *Lab) writePEM(file, kind string, make func() ([]byte, error)) error {
	der, err := make()
	if err != nil {
		return err
	}
	return os.WriteFile(l.claim.certificateFile(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
