package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/law"
	"weir/sim"
)

// rttRounding is the error that rounding each link's delay to nanoseconds can add to a round-trip time.
const rttRounding = 100 * time.Nanosecond

// useLabValues gives the simulator's runs what the lab measured in the same network: the median round-trip time of
// the lab's runs, and the flow start times of the run that differs only in its world. A stored run with other values is
// repeated.
func (r *runner) useLabValues(tasks []*task) error {
	if !r.labValues {
		return nil
	}
	m, err := measuredIn(tasks)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if !t.run.LabRTT {
			continue
		}
		if err := r.useValuesOf(t, m); err != nil {
			return err
		}
	}
	return nil
}

// measured holds what the simulator's runs take from the lab's.
type measured struct {
	rtt  map[string][]time.Duration // by networkOf
	twin map[string]*task           // by twinOf
}

func measuredIn(tasks []*task) (*measured, error) {
	m := &measured{rtt: map[string][]time.Duration{}, twin: map[string]*task{}}
	for _, t := range tasks {
		if t.run.World != experiment.WorldLab || t.rtt == 0 {
			continue
		}
		network, err := networkOf(t.run)
		if err != nil {
			return nil, err
		}
		twin, err := twinOf(t.run)
		if err != nil {
			return nil, err
		}
		m.rtt[network] = append(m.rtt[network], t.rtt)
		m.twin[twin] = t
	}
	return m, nil
}

func (r *runner) useValuesOf(t *task, m *measured) error {
	network, err := networkOf(t.run)
	if err != nil {
		return err
	}
	twin, err := twinOf(t.run)
	if err != nil {
		return err
	}
	rtt := median(m.rtt[network])
	if rtt == 0 {
		t.unmet = append(t.unmet, result.UnmetTexts("network.rtt", result.Warning, "rtt: the lab measured none in this network, so network.rtt of the file is used")...)
		return nil
	}
	var is time.Duration
	if t.labValues, is, err = sim.AtRTT(t.run, rtt); err != nil {
		return fmt.Errorf("run %s: %w", describe(t.run), err)
	}
	if off := (is - rtt).Abs(); off > rttRounding {
		t.unmet = append(t.unmet, result.UnmetTexts("network.rtt", result.Warning,
			fmt.Sprintf("rtt: %[2]v here, %[1]v in the lab: serialisation alone takes that long, or its paths differ", rtt, is))...)
	}
	lab := m.twin[twin]
	if lab != nil {
		t.labValues.Starts = lab.starts
	}
	var why string
	switch {
	case t.rtt != is:
		why = fmt.Sprintf("the lab's round-trip time is %v, and was %v in the stored run", is, t.rtt)
	case lab != nil && t.ended.Before(lab.ended):
		why = "the lab's run with the same seed was repeated, and its flows began at other times"
	}
	if t.stored && why != "" {
		t.stored = false
		r.progress.again(t.run, why)
	}
	return nil
}

// twinOf returns a key that is equal for runs that differ only in their world.
func twinOf(r *experiment.Run) (string, error) {
	twin := *r
	twin.World, twin.LabRTT = "", false
	return store.Key(&twin)
}

// startsOf returns when the flows of a run began and when their programs wrote, by flow.
func startsOf(raw *result.Raw) map[experiment.FlowName]experiment.FlowStart {
	starts := make(map[experiment.FlowName]experiment.FlowStart, len(raw.Flows))
	for i := range raw.Flows {
		f := &raw.Flows[i]
		starts[experiment.FlowName{Item: f.Item, Mouse: f.Mouse, Epoch: f.Epoch}] = experiment.FlowStart{At: law.Duration(f.Start), Wrote: law.Duration(f.Wrote)}
	}
	return starts
}

// networkOf returns a key that is equal for runs with the same network and the same hosts to measure the idle round
// trip.
func networkOf(r *experiment.Run) (string, error) {
	asked := []any{r.Config.Graph, r.Config.Switch}
	for i := range r.Config.Items {
		if pairs := r.Config.Items[i].Pairs; len(pairs) > 0 {
			asked = append(asked, pairs[0])
		}
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return "", fmt.Errorf("compare networks: %w", err)
	}
	return string(text), nil
}

// median returns the median, or 0 for an empty list.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
