package switchd

import "weir/datapath/reading"

// Credits is what promises and credits do at a port.
type Credits struct {
	Paces     bool    `json:"paces"`           // packets wait for credits, as configured; false: promises only
	Pacing    bool    `json:"pacing"`          // one segment of each flow exceeds BDP and target now, so every acknowledgement needs a credit
	LiveBytes uint64  `json:"promised_bytes"`  // promised to flows that have not sent yet, as of the last heartbeat
	AheadMs   float64 `json:"ahead_ms"`        // time until all data that was released to the port will have drained
	Promised  uint64  `json:"promises"`        // packets that carried a promise since the port was first attached
	Parked    uint64  `json:"parked"`          // packets that waited for a credit since the port was first attached
	Refused   uint64  `json:"refused"`         // packets that passed although they had to wait: the wait was too long, or the parking took no packet
	LongestMs float64 `json:"longest_wait_ms"` // longest wait since the port was first attached
}

// Parking is the state of a switch's parking device, where packets wait.
type Parking struct {
	Present      bool   `json:"present"`          // the devices, their program and their queue are there
	Reason       string `json:"reason,omitempty"` // why the parking cannot be read
	Packets      uint32 `json:"packets"`          // packets that wait now
	Bytes        uint32 `json:"bytes"`            // bytes that they stand for
	MostPackets  uint32 `json:"most_packets"`     // packets that may wait
	MostBytes    uint32 `json:"most_bytes"`       // bytes that may wait
	Parked       uint64 `json:"parked"`           // packets that waited since the device was made
	Returned     uint64 `json:"returned"`         // of these, packets that left to their ports
	PassedGone   uint64 `json:"passed_gone"`      // packets that passed because the device or its queue was gone
	PassedFull   uint64 `json:"passed_full"`      // packets that passed because the parking was full
	PassedMarked uint64 `json:"passed_marked"`    // packets that passed because their mark or priority is in use
	Dropped      uint64 `json:"dropped"`          // packets dropped: their port was replaced meanwhile, or somebody else sent them there
}

func creditsOf(k *reading.Credits) *Credits {
	if !k.Promises && !k.Paces {
		return nil
	}
	return &Credits{
		Paces: k.Paces, Pacing: k.Pacing, LiveBytes: k.LiveBytes, AheadMs: milliseconds(k.Ahead),
		Promised: k.Promised, Parked: k.Parked, Refused: k.Refused, LongestMs: milliseconds(k.Longest),
	}
}

func parkingOf(k *reading.Parking) *Parking {
	if k == nil {
		return nil
	}
	return &Parking{
		Present: k.Present, Reason: k.Fault, Packets: k.Packets, Bytes: k.Bytes, MostPackets: k.MostPackets, MostBytes: k.MostBytes,
		Parked: k.Parked, Returned: k.Returned, PassedGone: k.PassedGone, PassedFull: k.PassedFull, PassedMarked: k.PassedMarked,
		Dropped: k.Stale + k.Foreign,
	}
}

// parks reports whether packets of the port may have to wait.
func (v *view) parks() bool { return v.k.Credits.Paces || v.k.Repairs != nil }

// lookNoParking: packets that should wait pass.
func lookNoParking(v *view) (reason, remedy string) {
	p := v.sw.Parking
	if !v.parks() || !v.k.Local || p == nil || p.Present {
		return "", ""
	}
	reason = "the parking is missing: packets that should wait pass"
	if p.Fault != "" {
		reason += " (" + p.Fault + ")"
	}
	if v.process.here {
		return reason, "weir switch makes it again within a second; if it does not, find out who removes it: ip monitor link"
	}
	return reason, "start weir switch again"
}

// lookUnordered: RPS is off.
func lookUnordered(v *view) (reason, remedy string) {
	p := v.sw.Parking
	if !v.parks() || !v.k.Local || p == nil || !p.Unordered {
		return "", ""
	}
	return "the parking does not steer flows (RPS): packets of a flow that waited may change places",
		"the kernel needs CONFIG_RPS, and weir switch a writable /sys that shows the devices of its network namespace"
}

// lookFullParking: since the previous reading the parking had no room.
func lookFullParking(v *view) (reason, remedy string) {
	p := v.sw.Parking
	if !v.parks() || !v.k.Local || p == nil {
		return "", ""
	}
	full := p.Packets >= p.MostPackets || p.Bytes >= p.MostBytes
	if !full && (v.recent == nil || v.recent.parkingFull == 0) {
		return "", ""
	}
	remedy = "more flows send at once than credits can hold: raise target_fraction or the buffer, or send by more ports"
	if !v.k.Credits.Paces {
		remedy = "senders send more at once than the parking of all ports can keep: lower park at some of them, or send by more ports"
	}
	return "the parking is full: packets that should wait pass, and the queue may grow above its target", remedy
}
