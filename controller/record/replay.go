package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/law"
)

// Options selects what a replay runs. The zero values: the recorded laws, with the recorded parameters.
type Options struct {
	Specs law.Specs
	Law   string   // in place of the recorded laws
	Set   []string // law.param=value
}

// OptionError is the error for options that do not fit the recording or the build.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }

func (e *OptionError) Unwrap() error { return e.Err }

// Result is what a replay found.
type Result struct {
	Controller string        `json:"controller"`
	Weir       string        `json:"weir"` // the version that wrote the recording
	Entries    uint64        `json:"entries"`
	LastedNs   time.Duration `json:"lasted_ns"`
	Problems   []string      `json:"problems"` // why the recording is not whole
	Ended      bool          `json:"ended"`    // false: the controller was killed, or is still running
	Other      bool          `json:"other"`    // another law or other parameters: differences are expected
	Laws       []LawResult   `json:"laws"`
}

// LawResult compares the recorded law with the law of the replay.
type LawResult struct {
	Law      string          `json:"law"`
	Params   json.RawMessage `json:"params"` // of the replay
	Equal    bool            `json:"equal"`  // to the byte
	First    *Difference     `json:"first_difference,omitempty"`
	Differ   uint64          `json:"entries_that_differ"`
	Recorded Summary         `json:"recorded"`
	Replayed Summary         `json:"replayed"`
}

// Difference is the first entry with other actions.
type Difference struct {
	Serial   uint64        `json:"serial"`
	Now      time.Duration `json:"now_ns"`
	Event    string        `json:"event"`
	Recorded []string      `json:"recorded"`
	Replayed []string      `json:"replayed"`
}

// Same reports whether every law gave the same actions to the byte, and the recording has all events.
func (r *Result) Same() bool {
	return len(r.Problems) == 0 && len(r.Laws) > 0 && !slices.ContainsFunc(r.Laws, func(l LawResult) bool { return !l.Equal })
}

// run is a law that is replayed.
type run struct {
	number  uint32 // of the recorded law; 0: of all
	owner   law.Owner
	law     law.Law
	result  LawResult
	was, is holds
	out     []law.Action
}

// replay is the state of Replay.
type replay struct {
	o     Options
	other bool
	laws  []*run
	was   bytes.Buffer
	is    bytes.Buffer
	list  []any
}

// Replay reads a recording to its end, and runs laws with its events.
func Replay(r *Reader, o Options) (res *Result, err error) {
	p := &replay{o: o, other: o.Law != "" || len(o.Set) > 0}
	res = &Result{Controller: r.Header.Controller, Weir: r.Header.Weir, Other: p.other, Problems: []string{}, Laws: []LawResult{}}
	if p.other && o.Law != "" {
		l, err := p.make(o.Law, 0, 0, "")
		if err != nil {
			return nil, err
		}
		p.laws = append(p.laws, l)
	}
	used := map[string]bool{o.Law: true}
	var serial uint64
	defer func() {
		if v := recover(); v != nil { // a law that cannot take the events of a forged recording
			res, err = nil, fmt.Errorf("entry %d: the law fails: %v", serial, v)
		}
	}()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		serial = e.Serial
		if e.Serial > 0 && (e.Event.Value != nil || e.Event.Other != "") {
			res.Entries++
		}
		for _, b := range e.Begins {
			used[b.Name] = true
			if err := p.begin(b); err != nil {
				return nil, err
			}
		}
		if e.Event.Value != nil {
			res.LastedNs = e.Now
			if err := p.step(e); err != nil {
				return nil, err
			}
		}
	}
	if err := p.unused(used); err != nil {
		return nil, err
	}
	for _, l := range p.laws {
		l.result.Recorded, l.result.Replayed = l.was.end(res.LastedNs), l.is.end(res.LastedNs)
		l.result.Equal = l.result.Differ == 0
		res.Laws = append(res.Laws, l.result)
	}
	res.Problems, res.Ended = append(res.Problems, r.Problems()...), r.Ended()
	return res, nil
}

// begin makes a recorded law, unless another one takes its place.
func (p *replay) begin(b LawBegins) error {
	if b.Law == 0 || p.o.Law != "" || slices.ContainsFunc(p.laws, func(l *run) bool { return l.number == b.Law }) {
		return nil
	}
	if len(p.laws) >= maxLaws {
		return fmt.Errorf("%w: more than %d laws", ErrMalformed, maxLaws)
	}
	l, err := p.make(b.Name, b.Law, b.Owner, b.Params)
	if err == nil {
		p.laws = append(p.laws, l)
	}
	return err
}

// unused returns an error for a parameter of a law that does not run.
func (p *replay) unused(used map[string]bool) error {
	for _, set := range p.o.Set {
		name, _, _ := strings.Cut(set, ".")
		if !used[name] {
			return &OptionError{fmt.Errorf("--set %s: law %s is not in the recording", set, config.Clip(name))}
		}
	}
	return nil
}

// make makes a law with recorded parameters and those of the options.
func (p *replay) make(name string, number uint32, owner law.Owner, recorded string) (*run, error) {
	spec, ok := p.o.Specs.Named(name)
	if !ok || spec.New == nil || !slices.Contains(spec.Sites, law.Controller) {
		return nil, &OptionError{fmt.Errorf("this build has no law %s of a controller", config.Clip(name))}
	}
	params := spec.Params()
	if recorded != "" {
		if err := config.DecodeParams([]byte(recorded), params); err != nil {
			return nil, fmt.Errorf("recorded parameters of law %s: %w", name, err)
		}
	}
	for _, set := range p.o.Set {
		if err := setParam(params, name, set); err != nil {
			return nil, &OptionError{fmt.Errorf("--set %s: %w", set, err)}
		}
	}
	made, err := spec.New(law.Controller, params, &law.Topology{})
	if err != nil {
		return nil, fmt.Errorf("law %s: %w", name, err)
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("law %s: %w", name, err)
	}
	return &run{number: number, owner: owner, law: made, result: LawResult{Law: name, Params: text}, was: newHolds(), is: newHolds()}, nil
}

// setParam sets a parameter as the schema of the law allows it, if it is one of this law.
func setParam(params any, name, set string) error {
	key, value, ok := strings.Cut(set, "=")
	of, param, dotted := strings.Cut(key, ".")
	if !ok || !dotted || param == "" {
		return errors.New("want LAW.PARAMETER=VALUE")
	}
	if of != name {
		return nil
	}
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	before, known := all[param]
	if !known {
		return fmt.Errorf("law %s has no parameter %s", name, config.Clip(param))
	}
	if all[param] = json.RawMessage(value); !json.Valid(all[param]) || before[0] == '"' {
		if all[param], err = json.Marshal(value); err != nil {
			return err
		}
	}
	if text, err = json.Marshal(all); err != nil {
		return err
	}
	return checkParams(text, params)
}

// checkParams reads parameters as those of a file are read.
func checkParams(text []byte, params any) error {
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	if err := config.ParamsSchema(params).Validate(plain); err != nil {
		return errors.New(config.OneLine(err.Error()))
	}
	if err := config.DecodeParams(text, params); err != nil {
		return err
	}
	if zeros := config.Zeros(params); len(zeros) > 0 {
		return fmt.Errorf("%s is 0, want more", zeros[0])
	}
	if p, is := params.(interface{ Check() error }); is {
		return p.Check()
	}
	return nil
}

// step runs the laws that got an event, and compares their actions. Another law in their place gets every event.
func (p *replay) step(e *Entry) error {
	for _, l := range p.laws {
		var recorded []Item[law.Action]
		got := l.number == 0 || e.Serial == 0
		for _, s := range e.Steps {
			if s.Law == l.number || l.number == 0 {
				got, recorded = true, append(recorded, s.Actions...)
			}
		}
		for _, a := range recorded {
			l.was.add(e.Now, a.Value)
		}
		_, tick := e.Event.Value.(law.Tick)
		if got && (!p.other || !tick) {
			p.run(l, e, e.Event.Value)
		}
		if p.other {
			p.ticks(l, e)
		}
		if err := p.compare(l, e, recorded); err != nil {
			return err
		}
	}
	return nil
}

// run runs a law with an event. Its actions are added to those of the entry.
func (p *replay) run(l *run, e *Entry, event law.Event) {
	before := len(l.out)
	l.out = l.law.Step(e.Now, event, l.out)
	for i := before; i < len(l.out); i++ {
		l.out[i] = law.Own(l.out[i])
		l.is.add(e.Now, l.out[i])
	}
}

// ticks gives another law the ticks that it wants until the time of an entry. Recorded ticks are those of the recorded law.
func (p *replay) ticks(l *run, e *Entry) {
	const most = 1000 // of one entry: further ticks of a law that asks for the past are left out
	for range most {
		wake := l.law.Wake()
		if wake <= 0 || wake > e.Now {
			return
		}
		p.run(l, e, law.Tick{})
	}
}

// compare compares the actions of an entry with the recorded ones, to the byte.
func (p *replay) compare(l *run, e *Entry, recorded []Item[law.Action]) error {
	was, err := p.encode(&p.was, plain(p.list[:0], recorded))
	if err != nil {
		return err
	}
	is, err := p.encode(&p.is, issued(p.list[:0], l.out, l.owner, e.Cause))
	if err != nil {
		return err
	}
	if !bytes.Equal(is, was) {
		if l.result.Differ++; l.result.First == nil {
			d := &Difference{Serial: e.Serial, Now: e.Now, Event: eventText(e.Event.Value), Recorded: []string{}, Replayed: []string{}}
			for _, a := range recorded {
				d.Recorded = append(d.Recorded, actionText(a))
			}
			for _, a := range l.out {
				d.Replayed = append(d.Replayed, actionText(Item[law.Action]{Value: a}))
			}
			l.result.First = d
		}
	}
	clear(l.out)
	l.out = l.out[:0]
	return nil
}

// encode encodes a list of actions.
func (p *replay) encode(to *bytes.Buffer, list []any) ([]byte, error) {
	p.list = list
	to.Reset()
	return encode(to, list)
}

// plain returns recorded events or actions as they were encoded.
func plain[V any](to []any, items []Item[V]) []any {
	for _, i := range items {
		if any(i.Value) == nil {
			to = append(to, i.Other)
		} else {
			to = append(to, known(i.Value))
		}
	}
	return to
}
