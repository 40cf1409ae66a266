package store

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/bus"
	"weir/policy"
)

// Limits of what is stored.
const (
	MaxVersions = 32     // of a policy that are kept, in addition to the newest
	MaxChanges  = 10_000 // in the log
	MaxDeleted  = 300    // deleted policies that can come back
	maxValue    = bus.MaxPolicyValue
	maxDecoded  = 4 << 20 // bytes of a value before it is compressed
	maxPack     = 1 << 20 // bytes of texts in one pack, about
	maxUser     = 64      // letters of a user's name
	maxLives    = 64      // controllers
)

// The keys of the store:
//
//	head                    which policies there are: the only key that is changed, by compare-and-set
//	text.ROLE.NAME.ID       texts of policies that ROLE/NAME applied
//	change.N-ID.ROLE.NAME   change N, if the head refers to it; made by ROLE/NAME
//	inventory.NODE          what an agent reported
//	live.CONTROLLER         what a controller enforces
//
// The bus allows an operator only keys with its own name, so that they say who made a change.
const (
	headKey         = "head"
	textPrefix      = "text."
	changePrefix    = "change."
	inventoryPrefix = "inventory."
	livePrefix      = "live."
)

// ErrRecord is wrapped by the errors of records that cannot be read.
var ErrRecord = errors.New("the record of the store of policies is not valid")

// ref names a text: the key of its pack without the prefix, and the place in it.
type ref struct {
	Pack string `json:"pack"`
	At   int    `json:"at"`
}

// headRecord is the value of the key head.
type headRecord struct {
	Format   int         `json:"format"` // 1
	Change   uint64      `json:"change"` // number of the last change
	Log      string      `json:"log"`    // its key without the prefix: N-ID.ROLE.NAME
	Policies []headEntry `json:"policies"`
}

// headEntry is a policy of now, or a deleted one.
type headEntry struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Since   uint64 `json:"since"` // the change that applied it first, or that deleted it
	Text    ref    `json:"text"`
	Deleted bool   `json:"deleted,omitempty"`
}

// pack is texts that were applied together.
type pack struct {
	Format int         `json:"format"` // 1
	Texts  []packEntry `json:"texts"`
}

type packEntry struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Text    string `json:"text"`
	Past    []ref  `json:"past,omitempty"` // of earlier versions, the newest first
}

// Change is an entry of the log.
type Change struct {
	Number   uint64          `json:"number"`
	Time     time.Time       `json:"time"` // by the clock of the machine that made it
	By       string          `json:"by"`   // identity of its certificate; the bus vouches for it
	User     string          `json:"user"` // local user, as the machine reported it
	Action   string          `json:"action"`
	Policies []ChangedPolicy `json:"policies"`
	Before   string          `json:"before"` // key of the change before, without the prefix
}

// ChangedPolicy is a policy that a change added, replaced or deleted.
type ChangedPolicy struct {
	Name string `json:"name"`
	From int    `json:"from"` // version; 0: there was none
	To   int    `json:"to"`   // version; 0: deleted
}

type record interface{ check() error }

// encode compresses a record. It applies the checks of decode.
func encode(r record) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxDecoded {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrRecord, len(text), maxDecoded)
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && out.Len() > maxValue {
		err = fmt.Errorf("%w: %d bytes, want at most %d", errTooLarge, out.Len(), maxValue)
	}
	return out.Bytes(), err
}

var errTooLarge = errors.New("the record is too large for the store of policies")

// decode reads a record. Others may have written it, so size and content are checked.
func decode(b []byte, r record) error {
	if len(b) > maxValue {
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrRecord, len(b), maxValue)
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxDecoded+1))
	if err == nil && len(text) > maxDecoded {
		err = fmt.Errorf("more than %d bytes", maxDecoded)
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return nil
}

func (h *headRecord) check() error {
	if h.Format != 1 {
		return fmt.Errorf("format %d, and this build knows 1: use a newer weir", h.Format)
	}
	if _, err := logAuthor(h.Log, h.Change); err != nil || len(h.Policies) > policy.MaxPolicies+MaxDeleted {
		return fmt.Errorf("change %d, %.200q, %d policies", h.Change, h.Log, len(h.Policies))
	}
	for i, e := range h.Policies {
		if i > 0 && h.Policies[i-1].Name >= e.Name {
			return fmt.Errorf("policy %.80q is not in order", e.Name)
		}
		if err := checkEntry(e.Name, e.Version, e.Text); err != nil {
			return err
		}
		if e.Since == 0 || e.Since > h.Change {
			return fmt.Errorf("policy %s since change %d of %d", e.Name, e.Since, h.Change)
		}
	}
	return nil
}

func (p *pack) check() error {
	if p.Format != 1 {
		return fmt.Errorf("format %d, and this build knows 1: use a newer weir", p.Format)
	}
	if len(p.Texts) > policy.MaxPolicies {
		return fmt.Errorf("%d texts", len(p.Texts))
	}
	for _, e := range p.Texts {
		if err := checkEntry(e.Name, e.Version, e.Past...); err != nil {
			return err
		}
		if len(e.Text) > policy.MaxFile || len(e.Past) > MaxVersions {
			return fmt.Errorf("policy %s: %d bytes, %d earlier versions", e.Name, len(e.Text), len(e.Past))
		}
	}
	return nil
}

func (c *Change) check() error {
	if c.Number == 0 || !validAuthor(strings.Replace(c.By, "/", ".", 1)) || !policy.ValidNode(c.Action) || len(c.User) > maxUser ||
		len(c.Policies) > policy.MaxPolicies {
		return fmt.Errorf("change %d by %.80q: %.80q of %d policies", c.Number, c.By, c.Action, len(c.Policies))
	}
	if _, err := logAuthor(c.Before, c.Number-1); err != nil && (c.Before != "" || c.Number > 1) {
		return fmt.Errorf("change %d: %w", c.Number, err)
	}
	for _, p := range c.Policies {
		if !policy.ValidNode(p.Name) || p.From < 0 || p.To < 0 {
			return fmt.Errorf("change %d of policy %.80q from version %d to %d", c.Number, p.Name, p.From, p.To)
		}
	}
	return nil
}

// nodeRecord is a node of the inventory.
type nodeRecord struct{ policy.Node }

func (n *nodeRecord) check() error { return n.Check() }

// liveRecord is what a controller enforces.
type liveRecord struct{ policy.Live }

func (l *liveRecord) check() error { return l.Check() }

func checkEntry(name string, version int, refs ...ref) error {
	if !policy.ValidNode(name) || version < 1 {
		return fmt.Errorf("policy %.80q, version %d", name, version)
	}
	for _, r := range refs {
		author, id, cut := cutLast(r.Pack)
		if !cut || !validAuthor(author) || !policy.ValidNode(id) || r.At < 0 || r.At >= policy.MaxPolicies {
			return fmt.Errorf("policy %s: text %.200q, %d", name, r.Pack, r.At)
		}
	}
	return nil
}

// logKey returns the key of a change, without the prefix.
func logKey(n uint64, id, author string) string { return fmt.Sprintf("%010d-%s.%s", n, id, author) }

// logAuthor returns ROLE.NAME of a key of change n, without the prefix.
func logAuthor(key string, n uint64) (string, error) {
	first, author, _ := strings.Cut(key, ".")
	number, id, _ := strings.Cut(first, "-")
	if n == 0 || number != fmt.Sprintf("%010d", n) || !policy.ValidNode(id) || !validAuthor(author) {
		return "", fmt.Errorf("%.200q is not a key of change %d", key, n)
	}
	return author, nil
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// validAuthor reports whether a text is ROLE.NAME.
func validAuthor(s string) bool {
	role, name, cut := strings.Cut(s, ".")
	return cut && policy.ValidNode(role) && policy.ValidNode(name)
}
