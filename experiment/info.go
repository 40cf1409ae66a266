package experiment

import (
	"time"

	"weir/experiment/result"
)

// Info returns what the statistics need to know about the run.
func (r *Run) Info() result.Info {
	info := result.Info{
		World: r.World, Seed: r.Seed, Scale: r.Scale, Scheme: r.Scheme, Laws: r.Laws,
		GuestCC: r.guestCC(), Params: r.Params, Axes: r.Point, Series: r.Config.Series.Std(), Switch: r.switchKind(),
		Windows: map[string][2]time.Duration{}, Ideal: r.ideal(),
	}
	for label, w := range r.Config.Windows {
		info.Windows[label] = [2]time.Duration{w[0].Std(), w[1].Std()}
	}
	return info
}

// switchKind returns the kind of the lab's switches if they are neither bridges nor routers; "" in the simulator.
func (r *Run) switchKind() string {
	if r.World != "lab" || r.Config.Switch == "bridge" {
		return ""
	}
	return r.Config.Switch
}

// guestCC returns the congestion control of all TCP items; "" when they differ.
func (r *Run) guestCC() string {
	cc := ""
	for _, item := range r.Config.Items {
		if item.Proto == "udp" {
			continue
		}
		of := r.Config.Profiles[item.Profile].CC
		if cc != "" && cc != of {
			return ""
		}
		cc = of
	}
	return cc
}
