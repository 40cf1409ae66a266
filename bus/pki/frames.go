package pki

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"weir/bus/inband"
)

// frameFile has the key of commands in frames (bus/inband), hexadecimal. An agent has its own, and a controller has the one that
// all of them follow from.
const frameFile = "frames.key"

// FrameKey reads the key of frames that [CA.Enrol] wrote to dir.
func FrameKey(dir string) (k inband.Key, err error) {
	name := filepath.Join(dir, frameFile)
	info, err := os.Stat(name)
	if err != nil {
		return k, fmt.Errorf("the key of frames: %w; enrol again (weir bus enrol)", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return k, fmt.Errorf("%s has mode %04o, and others can read the key: set 0600", name, info.Mode().Perm())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return k, fmt.Errorf("the key of frames: %w", err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("%s has no key of %d hexadecimal digits: enrol again (weir bus enrol)", name, 2*len(k))
	}
	return inband.Key(b), nil
}

// frameKey returns the key of an identity; false: it has none. It follows from the CA's key, so it changes when that is rotated.
func frameKey(ca *ecdsa.PrivateKey, id Identity) (k inband.Key, ok bool, err error) {
	if id.Role != Agent && id.Role != Controller {
		return k, false, nil
	}
	secret, err := ca.Bytes()
	if err != nil {
		return k, false, fmt.Errorf("the key of frames: %w", err)
	}
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte("weir frames of controllers")) // a hash takes all
	h.Sum(k[:0])
	if id.Role == Agent {
		k = k.Of(id.Name)
	}
	return k, true, nil
}
