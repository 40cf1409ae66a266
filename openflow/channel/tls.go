package channel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Certificates names three PEM files: the trusted CAs, the controller's certificate, and its key.
type Certificates struct {
	CA          string // one or more certificates; the peer's must be signed by one of them
	Certificate string // the controller's, then those between it and the peer's CA
	Key         string
}

// ServerTLS returns the configuration for listening: TLS 1.2 or later; a switch must show a certificate that CA signed. Changed
// files are read again, for new connections. Unusable files are logged, and the last good ones stay; log may be nil.
func ServerTLS(files Certificates, log *slog.Logger) (*tls.Config, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &renewal{files: files, log: log, stamps: files.stamps(), looked: time.Now()}
	var err error
	if r.config, err = files.serving(); err != nil {
		return nil, err
	}
	outer := r.config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(time.Now()), nil }
	return outer, nil
}

func (f Certificates) serving() (*tls.Config, error) {
	ca, own, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca,
		SessionTicketsDisabled: true, // so that a certificate is verified each time
	}, nil
}

// renewEvery is the least time between two checks of the files: peers decide how often connections are made.
const renewEvery = time.Second

// renewal has the configuration from the files as they were read last.
type renewal struct {
	files Certificates
	log   *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	stamps [3]stamp // when they were read, usable or not
	looked time.Time
}

// stamp changes when a file is replaced or gets new contents.
type stamp struct {
	inode, device uint64
	size          int64
	modified      time.Time
}

// stamps returns the stamps of the files; a missing file has the zero stamp.
func (f Certificates) stamps() (out [3]stamp) {
	for i, name := range [...]string{f.CA, f.Certificate, f.Key} {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		out[i] = stamp{size: info.Size(), modified: info.ModTime()}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			out[i].inode, out[i].device = s.Ino, s.Dev
		}
	}
	return out
}

func (r *renewal) current(now time.Time) *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.looked) < renewEvery {
		return r.config
	}
	r.looked = now
	stamps := r.files.stamps() // before they are read, so that a later write shows the next time
	if stamps == r.stamps {
		return r.config
	}
	r.stamps = stamps
	config, err := r.files.serving()
	if err != nil {
		r.log.Error("new certificates cannot be used: the earlier ones stay", "error", err)
		return r.config
	}
	r.config = config
	leaf := config.Certificates[0].Leaf
	r.log.Info("certificates read again", "subject", leaf.Subject.String(), "until", leaf.NotAfter)
	return config
}

// ClientTLS returns the configuration for dialling a switch that listens: TLS 1.2 or later. The switch's certificate must be signed
// by CA and, if a name is given, be for that name. Without a name any switch of that CA is accepted.
func ClientTLS(files Certificates, name string) (*tls.Config, error) {
	ca, own, err := files.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, RootCAs: ca,
		InsecureSkipVerify: true, // Go would require a name; VerifyConnection verifies the rest
		VerifyConnection: func(state tls.ConnectionState) error {
			options := x509.VerifyOptions{Roots: ca, Intermediates: x509.NewCertPool(), DNSName: name}
			for _, c := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		},
	}, nil
}

func (f Certificates) load() (*x509.CertPool, tls.Certificate, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("read trusted certificates: %w", err)
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return nil, tls.Certificate{}, fmt.Errorf("read trusted certificates: %s has no PEM certificate", f.CA)
	}
	own, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("our certificate: %w", err)
	}
	return ca, own, nil
}

// checkListen refuses a configuration that would accept a peer without a certificate; nil is plain TCP.
func checkListen(c *tls.Config) error {
	switch {
	case c == nil:
		return nil
	case c.ClientAuth != tls.RequireAndVerifyClientCert:
		return errors.New("TLS for OpenFlow: switches must show a certificate: set ClientAuth to RequireAndVerifyClientCert")
	case c.MinVersion < tls.VersionTLS12:
		return errors.New("TLS for OpenFlow: set MinVersion to TLS 1.2 or later")
	}
	return nil
}

func checkDial(c *tls.Config) error {
	switch {
	case c == nil:
		return nil
	case c.InsecureSkipVerify && c.VerifyConnection == nil:
		return errors.New("TLS for OpenFlow: the switch's certificate would not be verified")
	case c.MinVersion < tls.VersionTLS12:
		return errors.New("TLS for OpenFlow: set MinVersion to TLS 1.2 or later")
	}
	return nil
}

// isTLS reports whether the error is one of TLS itself, not of the network.
func isTLS(err error) bool {
	var op *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &op) && op.Op == "remote error" || errors.As(err, &header)
}
