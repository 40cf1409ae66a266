package fairq

import (
	"encoding/json"
	"fmt"

	"weir/config"
	fairqlaw "weir/law/fairq"
)

// KeysOf implements switchd.ByPolicy.
func (Law) KeysOf(text json.RawMessage) (all, port map[string]any, err error) {
	p := fairqlaw.Default()
	if err := config.DecodeParams(text, p); err != nil {
		return nil, nil, err
	}
	usual := fairqlaw.Default()
	for name, differs := range map[string]bool{
		"aggregate": p.Aggregate != usual.Aggregate, "max_window": p.MaxWindow != usual.MaxWindow, "idle": p.Idle != usual.Idle, "start": p.Start != "" && p.Start != "path",
		"undivided": p.Undivided, "fairswitch": p.FairSwitch,
	} {
		if differs {
			return nil, nil, fmt.Errorf("%s: a switch's agent has only the default", name)
		}
	}
	all = map[string]any{"count": p.Count, "scale": p.Scale, "shrink": p.Shrink, "promises": onOff(p.Promises || p.Credits), "credits": onOff(p.Credits)}
	if p.Scale == "unify" {
		all["unify_shift"] = p.UnifyShift
	}
	if p.Edge {
		all["edge"] = map[string]any{"interval": p.EdgeInterval}
	}
	port = map[string]any{"target_fraction": p.TargetFraction, "interval": p.Interval, "updates": p.Updates, "gain": p.Gain, "min_window": p.MinWindow, "paths": p.Paths}
	if p.LongestWait > 0 {
		port["longest_wait"] = p.LongestWait
	}
	if p.HoldRequests != nil {
		port["hold_requests"] = onOff(*p.HoldRequests)
	}
	if p.RepairLosses != nil {
		port["repair_losses"] = onOff(*p.RepairLosses)
	}
	return all, port, nil
}

func onOff(is bool) string {
	if is {
		return on
	}
	return off
}
