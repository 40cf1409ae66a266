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

// rttRounding is what whole nanoseconds of each link's delay may take off a round trip.
const rttRounding = 100 * time.Nanosecond

// putBeside gives the simulator's runs that were asked for beside the lab what the lab measured in the same network: the
// round trip, the median over its runs there; and the starts of flows from the run that differs in nothing but its world. A run that is kept from a time when these were others is run again.
func (r *runner) putBeside(tasks []*task) error {
	if !r.beside {
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
		if err := r.besideLab(t, m); err != nil {
			return err
		}
	}
	return nil
}

// measured is what the lab's runs tell the simulator's.
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

func (r *runner) besideLab(t *task, m *measured) error {
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
		t.unmet = append(t.unmet, result.UnmetTexts("network.rtt", result.Warning, "rtt: the lab measured none in this network, so it is network.rtt as asked")...)
		return nil
	}
	var is time.Duration
	if t.beside, is, err = sim.AtRTT(t.run, rtt); err != nil {
		return fmt.Errorf("run %s: %w", describe(t.run), err)
	}
	if off := (is - rtt).Abs(); off > rttRounding {
		t.unmet = append(t.unmet, result.UnmetTexts("network.rtt", result.Warning,
			fmt.Sprintf("rtt: the lab's is %v, and %v here: the lines alone take that, or its paths differ", rtt, is))...)
	}
	lab := m.twin[twin]
	if lab != nil {
		t.beside.Starts = lab.starts
	}
	var why string
	switch {
	case t.rtt != is:
		why = fmt.Sprintf("the lab's round trip is %v now, and was %v", is, t.rtt)
	case lab != nil && t.ended.Before(lab.ended):
		why = "the lab's run with the same seed was run again since, and its flows began at other times"
	}
	if t.stored && why != "" {
		t.stored = false
		r.progress.again(t.run, why)
	}
	return nil
}

// twinOf is equal for runs that differ in their worlds only.
func twinOf(r *experiment.Run) (string, error) {
	twin := *r
	twin.World, twin.LabRTT = "", false
	return store.Key(&twin)
}

// startsOf is when the flows of a run began and their programs wrote, by their names.
func startsOf(raw *result.Raw) map[experiment.FlowName]experiment.FlowStart {
	starts := make(map[experiment.FlowName]experiment.FlowStart, len(raw.Flows))
	for i := range raw.Flows {
		f := &raw.Flows[i]
		starts[experiment.FlowName{Item: f.Item, Mouse: f.Mouse, Epoch: f.Epoch}] = experiment.FlowStart{At: law.Duration(f.Start), Wrote: law.Duration(f.Wrote)}
	}
	return starts
}

// networkOf is equal for runs whose idle round trip is measured between the same hosts of the same network.
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

// median is 0 of nothing.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
