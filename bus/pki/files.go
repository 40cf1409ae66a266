package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Files names the files of a peer.
type Files struct {
	CA      string // the trusted CAs, PEM
	Own     string // the certificate and its key, PEM
	Revoked string // serial numbers, hexadecimal, one a line; "": none
}

// In returns the files that [CA.Enrol] writes to dir for a name.
func In(dir, name string) Files {
	return Files{CA: filepath.Join(dir, "ca.pem"), Own: filepath.Join(dir, name+".pem"), Revoked: filepath.Join(dir, "revoked")}
}

// NameIn returns the name of the only certificate that [CA.Enrol] has written to dir.
func NameIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look for a certificate: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".pem"); ok && name != "ca" {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("%s has %d certificates of its own, want one: enrol this machine (weir bus enrol), or give its name", dir, len(names))
	}
	return names[0], nil
}

// Find returns the files of the only certificate that [CA.Enrol] has written to dir.
func Find(dir string) (Files, error) {
	name, err := NameIn(dir)
	return In(dir, name), err
}

// lookEvery is the least time between two checks of the files: peers decide how often connections are made.
const lookEvery = time.Second

// Keys are the contents of Files. They are read again when a file changes. Unusable files are logged, and the last usable
// contents stay.
type Keys struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	loaded  *loaded
	stamps  [3]stamp
	looked  time.Time
	changes uint64
}

type loaded struct {
	pool    *x509.CertPool
	own     tls.Certificate
	id      Identity
	revoked map[string]bool
}

type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
}

// Load reads the files. log may be nil.
func Load(files Files, log *slog.Logger) (*Keys, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &Keys{files: files, log: log, now: time.Now}
	k.stamps, k.looked = files.stamps(), k.now()
	var err error
	k.loaded, err = files.load()
	return k, err
}

// Identity returns the peer's own identity.
func (k *Keys) Identity() Identity { return k.current().id }

// Look reads changed files at once, and returns how often contents changed since Load.
func (k *Keys) Look() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked = k.now()
	k.look()
	return k.changes
}

func (k *Keys) current() *loaded {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); now.Sub(k.looked) >= lookEvery {
		k.looked = now
		k.look()
	}
	return k.loaded
}

func (k *Keys) look() {
	stamps := k.files.stamps()
	if stamps == k.stamps {
		return
	}
	k.stamps = stamps
	l, err := k.files.load()
	if err == nil && l.id != k.loaded.id {
		err = fmt.Errorf("%s is for %v, and this process is %v", k.files.Own, l.id, k.loaded.id)
	}
	if err != nil {
		k.log.Error("cannot use the changed certificates: the earlier ones stay", "error", err)
		return
	}
	k.loaded = l
	k.changes++
	k.log.Info("certificates read again", "identity", l.id, "not_after", l.own.Leaf.NotAfter, "revoked", len(l.revoked))
}

func (f Files) names() []string { return []string{f.CA, f.Own, f.Revoked} }

func (f Files) stamps() (out [3]stamp) {
	for i, name := range f.names() {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		out[i] = stamp{size: info.Size(), modified: info.ModTime()}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			out[i].inode = s.Ino
		}
	}
	return out
}

func (f Files) load() (*loaded, error) {
	info, err := os.Stat(f.Own)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, and others can read the key: set 0600", f.Own, info.Mode().Perm())
	}
	l := &loaded{pool: x509.NewCertPool(), revoked: map[string]bool{}}
	if l.own, err = tls.LoadX509KeyPair(f.Own, f.Own); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Own, err)
	}
	if l.id, err = IdentityOf(l.own.Leaf); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Own, err)
	}
	bundle, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the trusted CAs: %w", err)
	}
	authorities, err := parseCertificates(bundle)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.CA, err)
	}
	for _, c := range authorities {
		l.pool.AddCert(c)
	}
	if f.Revoked == "" {
		return l, nil
	}
	list, err := os.ReadFile(f.Revoked)
	if err != nil {
		return nil, fmt.Errorf("read the revoked certificates: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		line = strings.ToLower(strings.TrimSpace(line))
		if n, ok := new(big.Int).SetString(line, 16); ok {
			l.revoked[n.Text(16)] = true
		} else if line != "" {
			return nil, fmt.Errorf("%s: %q is no serial number", f.Revoked, clip(line))
		}
	}
	return l, nil
}

func parseCertificates(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
