package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/experiment"
	"weir/sim"
)

// rttRounding is what whole nanoseconds of each link's delay may take off a round trip.
const rttRounding = 100 * time.Nanosecond

// putBeside gives the simulator's runs that were asked for beside the lab the round trip that the lab measured in the
// same network: the median over its runs there. A run that is kept from a time when that was another is run again.
func (r *runner) putBeside(tasks []*task) error {
	measured := map[string][]time.Duration{}
	for _, t := range tasks {
		if t.run.World != experiment.WorldLab || t.rtt == 0 || !slices.ContainsFunc(tasks, func(t *task) bool { return t.run.LabRTT }) {
			continue
		}
		key, err := networkOf(t.run)
		if err != nil {
			return err
		}
		measured[key] = append(measured[key], t.rtt)
	}
	for _, t := range tasks {
		if !t.run.LabRTT {
			continue
		}
		key, err := networkOf(t.run)
		if err != nil {
			return err
		}
		rtt := median(measured[key])
		if rtt == 0 {
			t.unmet = append(t.unmet, "rtt: the lab measured none in this network, so it is network.rtt as asked")
			continue
		}
		var is time.Duration
		if t.beside, is, err = sim.AtRTT(t.run, rtt); err != nil {
			return fmt.Errorf("run %s: %w", describe(t.run), err)
		}
		if off := (is - rtt).Abs(); off > rttRounding {
			t.unmet = append(t.unmet, fmt.Sprintf("rtt: the lab's is %v, and %v here: the lines alone take that, or its paths differ", rtt, is))
		}
		if t.stored && t.rtt != is {
			t.stored = false
			r.progress.again(t.run, fmt.Sprintf("the lab's round trip is %v now, and was %v", is, t.rtt))
		}
	}
	return nil
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
