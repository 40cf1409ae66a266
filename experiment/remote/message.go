package remote

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/store"
	"weir/law"
)

// version is the version of the messages. A worker of another one is of another build.
const version = 1

// Limits of messages, in addition to [bus.MaxMessage].
const (
	maxAsked   = 4 << 20 // bytes of Asked as JSON, not compressed: a file has at most 1 MiB
	maxText    = 2000    // bytes of a text for people
	maxRunning = 256     // runs in a State
	maxSlots   = 1024
)

// errMalformed is the reason for which a message is refused before its content is used.
var errMalformed = errors.New("malformed")

// Task is one run for one worker. Key, a hash of all its settings, names it in the experiment that Asked plans.
type Task struct {
	Version int    `json:"version"`
	Job     string `json:"job"` // 16 hexadecimal digits; a job is one call of weir
	World   string `json:"world"`
	Code    string `json:"code"` // digest of the build's sources of this world
	Key     string `json:"key"`  // see [store.Key]
	Scheme  string `json:"scheme"`
	Seed    int64  `json:"seed"`
	Asked   []byte `json:"asked"` // a store.Asked as JSON, compressed by gzip
}

// packAsked compresses what the user asked for.
func packAsked(a *store.Asked) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(a), z.Close()); err != nil {
		return nil, fmt.Errorf("compress the experiment: %w", err)
	}
	return b.Bytes(), nil
}

func unpackAsked(b []byte) (*store.Asked, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: asked: %w", errMalformed, err)
	}
	var a store.Asked
	if err := decodeStrictly(io.LimitReader(z, maxAsked+1), &a); err != nil {
		return nil, fmt.Errorf("%w: asked: %w", errMalformed, err)
	}
	return &a, nil
}

func (t *Task) encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err == nil && len(b) > bus.MaxMessage-1024 { // 1024: headers
		err = fmt.Errorf("the experiment is too large for a message: %d bytes, at most %d; run it without --on, or make the file smaller", len(b), bus.MaxMessage-1024)
	}
	return b, err
}

func decodeTask(b []byte) (*Task, error) {
	if len(b) > bus.MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	var t Task
	if err := decodeStrictly(bytes.NewReader(b), &t); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch {
	case t.Version != version:
		return nil, fmt.Errorf("%w: version %d", errMalformed, t.Version)
	case !isHex(t.Job, 16), !isHex(t.Code, 32), !isHex(t.Key, 32):
		return nil, fmt.Errorf("%w: job, code or key", errMalformed)
	case t.World != experiment.WorldLab && t.World != experiment.WorldSim:
		return nil, fmt.Errorf("%w: world", errMalformed)
	case len(t.Scheme) > maxText:
		return nil, fmt.Errorf("%w: scheme", errMalformed)
	}
	return &t, nil
}

// State is what a worker reports of itself, each second and when a run begins. Workers of other builds read and write it, too.
type State struct {
	Version  int               `json:"version"`
	Instance string            `json:"instance"` // another one after a restart
	Weir     string            `json:"weir"`
	Codes    map[string]string `json:"codes"` // digest of the sources, of each world that it runs
	Slots    int               `json:"slots"` // how many runs at a time
	Running  []Running         `json:"running"`
	Refused  map[string]uint64 `json:"refused"` // tasks, by reason
	// Unfit has worlds whose runs the worker could not carry out, each with the reason. It tries again now and then.
	Unfit map[string]string `json:"unfit,omitempty"`
}

// Running is a run in progress at a worker.
type Running struct {
	Job   string       `json:"job"`
	Key   string       `json:"key"`
	Try   uint64       `json:"try"` // 1: no other worker had it
	Phase string       `json:"phase,omitempty"`
	Now   law.Duration `json:"now"` // of the traffic; 0 before it begins
	Total law.Duration `json:"total"`
	Flows int          `json:"flows"` // that ended
}

func decodeState(b []byte) (*State, error) {
	var s State
	if len(b) > bus.MaxMessage {
		return nil, errMalformed
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !isHex(s.Instance, 16) || s.Slots < 1 || s.Slots > maxSlots || len(s.Running) > maxRunning || len(s.Codes) > 8 || len(s.Unfit) > 8 || !plainText(s.Weir) {
		return nil, fmt.Errorf("%w: state", errMalformed)
	}
	for _, reason := range s.Unfit {
		if !plainText(reason) {
			return nil, fmt.Errorf("%w: unfit", errMalformed)
		}
	}
	for i := range s.Running {
		r := &s.Running[i]
		if !isHex(r.Job, 16) || !isHex(r.Key, 32) || !plainText(r.Phase) || r.Now < 0 || r.Total < 0 || r.Flows < 0 {
			return nil, fmt.Errorf("%w: running", errMalformed)
		}
	}
	return &s, nil
}

// Notice announces a job each second, and that it ended.
type Notice struct {
	Job   string            `json:"job"`
	Weir  string            `json:"weir"`
	Codes map[string]string `json:"codes"` // digest of the sources, of each world of its runs
	Ended bool              `json:"ended"`
}

func decodeNotice(b []byte) (*Notice, error) {
	var n Notice
	if len(b) > bus.MaxMessage {
		return nil, errMalformed
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !isHex(n.Job, 16) || len(n.Codes) > 8 || !plainText(n.Weir) {
		return nil, fmt.Errorf("%w: notice", errMalformed)
	}
	return &n, nil
}

// resultName names a result in the object store. It is another one for each try, so that no worker replaces a result of another.
type resultName struct {
	job, key, worker string
	try              uint64
}

func (n resultName) String() string {
	return fmt.Sprintf("%s.%s.%s.%d", n.job, n.key, n.worker, n.try)
}

func parseResultName(text string) (n resultName, ok bool) {
	p := strings.Split(text, ".")
	if len(p) != 4 || !isHex(p[0], 16) || !isHex(p[1], 32) {
		return resultName{}, false
	}
	if _, err := pki.ParseIdentity("worker/" + p[2]); err != nil {
		return resultName{}, false
	}
	try, err := strconv.ParseUint(p[3], 10, 32)
	n = resultName{p[0], p[1], p[2], try}
	return n, err == nil && n.String() == text
}

// decodeStrictly reads one JSON value without unknown keys, and nothing after it.
func decodeStrictly(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func isHex(text string, digits int) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == digits && strings.ToLower(text) == text
}

// plainText reports whether a peer's text can be shown on a terminal.
func plainText(text string) bool {
	return len(text) <= maxText && utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// plain makes a text one that can be shown on a terminal.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	for len(text) > maxText-3 {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// stateEvery is the interval between two states of a worker, and two notices of a job.
const stateEvery = time.Second
