package switchd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"weir/config"
	"weir/law"
)

// ByPolicy is a Law that policies can choose for a port.
type ByPolicy interface {
	// KeysOf makes the law's keys of a file from all of its parameters: those of all ports, and those of one port. The error says
	// which parameter a switch's agent does not have.
	KeysOf(params json.RawMessage) (all, port map[string]any, err error)
}

// ecn is the law that the key mark of a port carries out. In a file it stands next to any law.
const ecn = "ecn"

// PolicyLaws lists the laws that policies can choose for a port.
func (a *Agent) PolicyLaws() []string {
	out := []string{ecn}
	for _, l := range a.laws {
		if _, can := l.(ByPolicy); can {
			out = append(out, l.Facts().Spec.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Planned is a port with the laws that policies chose for it.
type Planned struct {
	Port   string       // device
	Rate   law.Rate     // 0: that of its queue discipline
	Buffer law.Bytes    // 0: the same
	RTT    law.Duration // 0: the default
	Laws   []PlannedLaw
}

// PlannedLaw is a law at a port. Of two that cannot run at one switch, the one with the smaller place holds.
type PlannedLaw struct {
	Place   int // among all settings of the switch
	Law     string
	Params  json.RawMessage // all of them
	Percent int             // of the flows
}

// LeftOut is a law that cannot run at a port as a policy wants it.
type LeftOut struct{ Port, Law, Reason string }

// Plan makes the text of a file of kind: Switch, and lists the laws that it leaves out. The text is nil if no port has a law. Laws that the checks of such
// files refuse are left out one by one, so that one policy does not stop the others.
func (a *Agent) Plan(name, listen string, ports []Planned) (text []byte, left []LeftOut, err error) {
	m := planMaker{agent: a, all: map[string]map[string]any{}, bad: map[int]string{}}
	m.settings(ports)
	file := []any{}
	for i := range ports {
		if entry := m.port(&ports[i]); entry != nil {
			file = append(file, entry)
		}
	}
	if len(file) == 0 {
		return nil, m.left, nil
	}
	text, err = m.text(name, listen, file, m.all)
	if err == nil {
		_, err = a.Parse(name, text)
	}
	return text, m.left, err
}

type planMaker struct {
	agent *Agent
	all   map[string]map[string]any // keys of all ports, by law
	bad   map[int]string            // settings that cannot run here, by place, with the reason
	left  []LeftOut
}

// settings checks each setting alone, in their order. The first one of a law decides its keys of all ports.
func (m *planMaker) settings(ports []Planned) {
	found := map[int]PlannedLaw{}
	for i := range ports {
		for _, l := range ports[i].Laws {
			found[l.Place] = l
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		l := found[place]
		all, entry, err := m.keys(&l)
		if err == nil {
			var text []byte
			entry["match"] = "a" // any port
			if text, err = m.text("check", "", []any{entry}, map[string]map[string]any{l.Law: all}); err == nil {
				_, err = m.agent.Parse(l.Law, text)
			}
		}
		before, set := m.all[l.Law]
		switch {
		case err != nil:
			m.bad[place] = config.OneLine(err.Error())
		case all == nil:
		case !set:
			m.all[l.Law] = all
		case !reflect.DeepEqual(before, all):
			m.bad[place] = fmt.Sprintf("an older policy gives the law %s other values of what all ports of a switch share", l.Law)
		}
	}
}

// keys returns a law's keys in a file: those of all ports, and those in the entry of a port.
func (m *planMaker) keys(l *PlannedLaw) (all, entry map[string]any, err error) {
	if l.Law == ecn {
		k, err := markKey(l)
		return nil, map[string]any{"mark": k, "percent": 0}, err
	}
	for _, of := range m.agent.laws {
		by, can := of.(ByPolicy)
		if !can || of.Facts().Spec.Name != l.Law {
			continue
		}
		all, port, err := by.KeysOf(l.Params)
		return all, map[string]any{l.Law: port, "percent": l.Percent}, err
	}
	return nil, nil, fmt.Errorf("this agent has no law %s for its ports", l.Law)
}

// markKey returns the key mark from the parameters of ecn.
func markKey(l *PlannedLaw) (*Mark, error) {
	p := struct {
		Threshold law.Limit `json:"threshold"`
		NotECT    string    `json:"not_ect"`
	}{}
	err := json.Unmarshal(l.Params, &p)
	switch {
	case err != nil:
		return nil, err
	case p.NotECT != "pass":
		return nil, fmt.Errorf("not_ect: a switch's agent has no %s", config.Clip(p.NotECT))
	case l.Percent != 100:
		return nil, errors.New("marking is for all flows of a port: enforce.percent must be 100")
	}
	return &Mark{Threshold: p.Threshold.Bytes()}, nil
}

// port returns the entry of a port; nil: it has no law.
func (m *planMaker) port(p *Planned) map[string]any {
	entry := map[string]any{}
	for _, l := range slices.SortedFunc(slices.Values(p.Laws), func(a, b PlannedLaw) int { return a.Place - b.Place }) {
		if why, bad := m.bad[l.Place]; bad {
			m.left = append(m.left, LeftOut{p.Port, l.Law, why})
			continue
		}
		_, keys, _ := m.keys(&l) // checked before
		_, has := entry["percent"]
		if has && l.Law == ecn {
			delete(keys, "percent")
		}
		maps.Copy(entry, keys)
	}
	if len(entry) == 0 {
		return nil
	}
	entry["match"] = p.Port
	if p.Rate > 0 {
		entry["rate"] = p.Rate
	}
	if p.Buffer > 0 {
		entry["buffer"] = p.Buffer
	}
	if p.RTT > 0 {
		entry["rtt"] = p.RTT
	}
	return entry
}

func (m *planMaker) text(name, listen string, ports []any, all map[string]map[string]any) ([]byte, error) {
	file := map[string]any{"kind": "Switch", "version": FileVersion, "name": name, "metrics": map[string]any{"listen": listen}, "ports": ports}
	for law, keys := range all {
		if len(keys) > 0 {
			file[law] = keys
		}
	}
	return json.MarshalIndent(file, "", "  ")
}
